"""Streams: their batches, diverged replays, checkpoints and offsets."""
