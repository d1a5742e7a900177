"""Settings from the environment, and whether they work on this machine."""
