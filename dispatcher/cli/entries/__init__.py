"""`holdfast entries`, `attempts`, `trace` and `why`."""
