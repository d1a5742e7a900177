-- The number of unrouted batches, and the time of the oldest.
-- Uses ix_batch_unrouted.
SELECT count(*) AS count, min(written_at) AS moment FROM holdfast.batch WHERE routed_at IS NULL
