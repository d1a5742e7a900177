-- Creates missing partitions of the coming days; a database without a running service gets them
-- from its next upgrade. Index: the catalogue's own.
SELECT holdfast.ensure_partitions()
