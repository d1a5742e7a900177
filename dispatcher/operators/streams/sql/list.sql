-- Every stream with its newest batch.
-- Uses pk_batch.
SELECT s.name, s.query_id, s.epoch, s.run_id, s.checkpoint, s.adopted_at, s.started_at,
       b.batch_id AS last_batch_id, b.written_at AS last_written_at
FROM holdfast.stream s
LEFT JOIN LATERAL (
    SELECT batch_id, written_at FROM holdfast.batch
    WHERE stream = s.name AND query_id = s.query_id
    ORDER BY batch_id DESC LIMIT 1
) b ON true
ORDER BY s.name
