-- The first batch of a query that the ledger has; null where it has none.
-- Uses pk_batch.
SELECT min(batch_id) AS batch_id FROM holdfast.batch WHERE stream = %(stream)s AND query_id = %(query_id)s
