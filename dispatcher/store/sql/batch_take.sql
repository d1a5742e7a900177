-- Takes the oldest unrouted batches for this transaction, which may take its time; another router passes over them.
-- Uses ix_batch_unrouted.
SELECT batch_no, entry_count, written_at, set_config('statement_timeout', '10min', true) AS patience
FROM holdfast.batch
WHERE routed_at IS NULL
ORDER BY batch_no
LIMIT %(batches)s
FOR NO KEY UPDATE SKIP LOCKED
