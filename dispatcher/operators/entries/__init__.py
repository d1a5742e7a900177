"""Entries: found by key or listed, with their delivery at each endpoint."""
