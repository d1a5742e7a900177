-- The newest batch of a query that the ledger has: what the query's checkpoint has finished is in it.
-- Index: pk_batch.
SELECT max(batch_id) FROM holdfast.batch WHERE stream = %(stream)s AND query_id = %(query_id)s
