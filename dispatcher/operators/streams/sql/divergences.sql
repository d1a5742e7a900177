-- The newest 20 diverged replays of a stream's batches.
-- Reads all of divergence, a small table; uses uq_batch_batch_no.
SELECT v.id, b.query_id, b.batch_id, v.differing_count, v.row_count AS rows_now, b.row_count AS rows_then, v.found_at
FROM holdfast.divergence v
JOIN holdfast.batch b USING (batch_no)
WHERE b.stream = %(stream)s
ORDER BY v.id DESC
LIMIT 20
