"""Receivers to grade: a sound one in memory, eight that are each broken in one way, one in Node."""
