"""Streams: their batches, divergent replays, checkpoints and offsets."""
