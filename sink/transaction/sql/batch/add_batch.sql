-- The ledger's row: from COMMIT on, this batch is written. pk_batch refuses a second row with the
-- same ids, even if the lock on the stream failed. Index: pk_batch.
INSERT INTO holdfast.batch (
    stream, query_id, batch_id, batch_no, run_id, epoch, row_count, entry_count, duplicate_count,
    differing_count, suppressed_count, quarantined_count, digest, source_offsets, written_at
)
OVERRIDING SYSTEM VALUE
VALUES (
    %(stream)s, %(query_id)s, %(batch_id)s, %(batch_no)s, %(run_id)s, %(epoch)s, %(rows)s,
    %(entries)s, %(duplicates)s, %(differing)s, %(suppressed)s, %(quarantined)s, %(digest)s,
    %(source_offsets)s, %(written_at)s
)
