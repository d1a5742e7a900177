"""Attempts: every request that was sent, and its outcome."""
