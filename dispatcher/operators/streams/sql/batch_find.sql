-- A batch of the ledger by its ids, with the source offsets of the one before it; no row if it was not written.
-- Uses pk_batch twice.
SELECT b.stream, b.query_id, b.batch_id, b.batch_no, b.run_id, b.epoch, b.row_count, b.entry_count, b.duplicate_count,
       b.differing_count, b.suppressed_count, b.quarantined_count, encode(b.digest, 'hex') AS digest, b.source_offsets,
       p.source_offsets AS offsets_before, b.written_at, b.routed_at
FROM holdfast.batch b
LEFT JOIN holdfast.batch p ON p.stream = b.stream AND p.query_id = b.query_id AND p.batch_id = b.batch_id - 1
WHERE b.stream = %(stream)s AND b.query_id = %(query_id)s AND b.batch_id = %(batch_id)s
