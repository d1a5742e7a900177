"""One decision from its batch to its receipts."""
