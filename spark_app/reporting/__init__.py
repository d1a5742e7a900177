"""Metrics and the progress line."""
