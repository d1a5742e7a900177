"""The checks of a receiver, by group."""
