"""Proposals: planned by one person, approved by a second, applied once."""
