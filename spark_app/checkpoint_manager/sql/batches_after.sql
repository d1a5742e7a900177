-- What the ledger has of the batches of a query between two batches, the first left out.
-- Uses pk_batch.
SELECT count(*) AS batches, coalesce(sum(row_count), 0)::bigint AS rows, coalesce(sum(entry_count), 0)::bigint AS entries
FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id > %(after)s AND batch_id <= %(until)s
