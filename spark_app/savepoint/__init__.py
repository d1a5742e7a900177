"""Savepoints: the job's state as portable files, and a new checkpoint that begins with it."""
