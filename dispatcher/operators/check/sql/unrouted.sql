-- Batches that wait for a dispatcher to route them, and since when the oldest does.
-- Uses ix_batch_unrouted.
SELECT count(*) AS count, min(written_at) AS moment FROM holdfast.batch WHERE routed_at IS NULL
