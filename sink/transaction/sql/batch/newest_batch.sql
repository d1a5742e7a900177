-- The newest batch of a query that the ledger has; none where it does not know the query. True until
-- COMMIT, because the stream is locked. Index: pk_batch.
SELECT max(batch_id) AS batch_id
FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s
