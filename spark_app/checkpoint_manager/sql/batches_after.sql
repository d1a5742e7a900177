-- What the ledger has of the batches of a query after one of them.
-- Uses pk_batch.
SELECT batch_id, row_count, entry_count, source_offsets FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id > %(after)s
ORDER BY batch_id
