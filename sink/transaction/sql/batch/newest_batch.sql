-- The newest batch of a query in the ledger; null where the ledger does not know the query. Valid until
-- COMMIT, because the stream is locked. Index: pk_batch.
SELECT max(batch_id) AS batch_id
FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s
