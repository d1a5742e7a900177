"""`holdfast endpoint`."""
