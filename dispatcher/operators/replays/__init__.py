"""Replays: entries sent again under their keys, by a plan that a person applies."""
