"""Rows as JSON can hold them: what the commands print with --json, and the API answers."""
