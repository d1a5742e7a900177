"""Dispatchers: running and crashed processes."""
