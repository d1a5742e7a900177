"""Reissues: a decision made again under a new key."""
