"""Entries: found by key, listed or followed, with their delivery at each endpoint."""
