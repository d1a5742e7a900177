"""The check of a live database against the invariants."""
