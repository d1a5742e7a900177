"""Subjects: their lanes, gaps in a lane, and the state of transitions."""
