"""Receipts: what was sent, compared with what a receiver applied."""
