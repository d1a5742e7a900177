-- The checkpoints (query ids) that wrote to a stream, the newest first.
-- Uses pk_batch.
SELECT query_id, count(*) AS batches, min(batch_id) AS first_batch_id, max(batch_id) AS last_batch_id,
       min(written_at) AS first_written_at, max(written_at) AS last_written_at
FROM holdfast.batch
WHERE stream = %(stream)s
GROUP BY query_id
ORDER BY max(batch_no) DESC
