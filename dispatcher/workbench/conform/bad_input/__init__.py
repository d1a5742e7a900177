"""Requests that a receiver must refuse, one rule each."""
