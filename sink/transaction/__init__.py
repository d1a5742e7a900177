"""The batch transaction: ledger, keys, subjects, entries, quarantine."""
