"""Backlog, rates, latency, and what needs a person."""
