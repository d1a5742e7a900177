-- Makes the partitions of the coming days; safe when several services do so at once.
-- Needs no index.
SELECT holdfast.ensure_partitions() AS created
