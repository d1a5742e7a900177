-- Locks the oldest unrouted batches for this transaction; other routers skip them.
-- Uses ix_batch_unrouted.
SELECT batch_no, entry_count, written_at
FROM holdfast.batch
WHERE routed_at IS NULL
ORDER BY batch_no
LIMIT %(batches)s
FOR NO KEY UPDATE SKIP LOCKED
