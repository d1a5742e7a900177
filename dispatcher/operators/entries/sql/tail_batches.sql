-- Batches after a number, or with one of the skipped numbers: a lower number may commit later.
-- Uses uq_batch_batch_no.
SELECT batch_no, stream, query_id, batch_id, written_at, entry_count
FROM holdfast.batch
WHERE batch_no > %(after)s OR batch_no = ANY (%(missing)s::bigint[])
ORDER BY batch_no
LIMIT %(limit)s
