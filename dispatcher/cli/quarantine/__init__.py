"""`holdfast quarantine`."""
