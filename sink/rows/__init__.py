"""From the rows of a micro-batch to entries, as Arrow columns. No I/O."""
