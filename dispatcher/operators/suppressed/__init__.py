"""Suppressed decisions: recorded and not written; an overtaken one can be written later."""
