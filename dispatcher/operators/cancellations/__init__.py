"""Entries that a person cancelled before they left."""
