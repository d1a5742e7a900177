-- When each batch of a query was written, from one batch on.
-- Uses pk_batch.
SELECT batch_id, written_at FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id >= %(oldest)s
