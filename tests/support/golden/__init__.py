"""Checkpoints and savepoints of released versions, kept to be continued by the present code."""
