-- The newest batches of one checkpoint of a stream, before a batch id if given.
-- Uses pk_batch.
SELECT b.batch_id, b.batch_no, b.written_at, b.row_count, b.entry_count, b.duplicate_count, b.differing_count,
       b.suppressed_count, b.quarantined_count, b.epoch, b.run_id, b.routed_at,
       (SELECT count(*) FROM holdfast.divergence v WHERE v.batch_no = b.batch_no) AS divergences
FROM holdfast.batch b
WHERE b.stream = %(stream)s AND b.query_id = %(query_id)s
  AND (%(before)s::bigint IS NULL OR b.batch_id < %(before)s::bigint)
ORDER BY b.batch_id DESC
LIMIT %(limit)s
