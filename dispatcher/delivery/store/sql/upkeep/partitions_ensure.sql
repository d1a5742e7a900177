-- Creates the partitions of the coming days; safe when several processes run it at once.
-- Needs no index.
SELECT holdfast.ensure_partitions() AS created
