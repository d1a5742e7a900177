"""The checks of a receiver, in groups."""
