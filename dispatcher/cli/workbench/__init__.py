"""`holdfast listen`, `trigger`, `sign`, `verify` and `conform`."""
