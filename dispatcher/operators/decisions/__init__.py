"""Decisions by hand: a person blocks or releases a subject."""
