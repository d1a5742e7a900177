-- A batch of the ledger by its ids; no row if it was not written.
-- Uses pk_batch.
SELECT stream, query_id, batch_id, batch_no, run_id, epoch, row_count, entry_count, duplicate_count, differing_count,
       suppressed_count, quarantined_count, encode(digest, 'hex') AS digest, source_offsets, written_at, routed_at
FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id = %(batch_id)s
