"""Dead letters: entries that are no longer tried."""
