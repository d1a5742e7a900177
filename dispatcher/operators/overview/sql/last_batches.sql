-- The newest batches of all streams.
-- Walks uq_batch_batch_no backwards.
SELECT stream, query_id, batch_id, batch_no, written_at, routed_at, row_count, entry_count, duplicate_count,
       suppressed_count, quarantined_count
FROM holdfast.batch
ORDER BY batch_no DESC
LIMIT %(limit)s
