"""Subjects: their lanes, gaps in a lane, and their transition states."""
