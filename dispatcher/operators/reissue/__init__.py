"""Reissues: a decision made again under a new key, so that the business action is repeated."""
