"""Latency: the fixed cost of a small batch by phase, and from an event to the applied action."""
