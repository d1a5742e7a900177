-- The source offsets of a batch of a query and of the one before it.
-- Uses pk_batch.
SELECT batch_id, source_offsets FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id IN (%(batch)s - 1, %(batch)s)
