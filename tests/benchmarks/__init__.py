"""Measurements against peers, printed as tables; none of them is a test."""
