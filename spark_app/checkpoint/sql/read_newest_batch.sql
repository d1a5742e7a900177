-- The newest batch of a query in the ledger.
-- Index: pk_batch.
SELECT max(batch_id) FROM holdfast.batch WHERE stream = %(stream)s AND query_id = %(query_id)s
