"""The API beside clients that are slow, or have wrong tokens."""
