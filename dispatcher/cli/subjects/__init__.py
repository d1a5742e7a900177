"""`holdfast subjects`, `suppressed` and `receipts`."""
