-- The checkpoints of a stream that have a batch with this id, the newest first.
-- Uses pk_batch: a stream has few checkpoints.
SELECT query_id FROM holdfast.batch
WHERE stream = %(stream)s AND batch_id = %(batch_id)s
ORDER BY batch_no DESC
