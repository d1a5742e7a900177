-- Creates the partitions of the coming days, in a transaction of its own before the batch, so that
-- their locks are not held while the batch is written. No index.
SELECT holdfast.ensure_partitions()
