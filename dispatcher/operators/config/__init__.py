"""Settings from the environment, and whether they work here."""
