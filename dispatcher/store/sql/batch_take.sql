-- Takes the oldest unrouted batches for this transaction, which may take its time; another router passes over them. Its
-- COMMIT waits for no disk: what a crash takes away of it is routed again, and the claim, which comes behind it in the log,
-- waits for both. Uses ix_batch_unrouted.
SELECT batch_no, entry_count, written_at, set_config('statement_timeout', '10min', true) AS patience,
       set_config('synchronous_commit', 'off', true) AS haste
FROM holdfast.batch
WHERE routed_at IS NULL
ORDER BY batch_no
LIMIT %(batches)s
FOR NO KEY UPDATE SKIP LOCKED
