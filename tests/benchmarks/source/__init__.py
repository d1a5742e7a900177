"""Topics as a source: throughput, lag, catch-up, partitions that differ."""
