-- The ledger's rows of batches, of those that are written. Valid until COMMIT, because the stream is locked.
-- Index: pk_batch.
SELECT
    batch_id, batch_no, run_id, epoch, digest, written_at, row_count, entry_count, duplicate_count,
    differing_count, suppressed_count, quarantined_count
FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id = ANY(%(batch_ids)s::bigint[])
