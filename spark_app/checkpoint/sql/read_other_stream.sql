-- Another stream that has batches of a query, and the newest of them; no row where there is none.
-- Index: pk_batch.
SELECT stream.name, written.batch_id
FROM holdfast.stream
CROSS JOIN LATERAL (
    SELECT max(batch_id) AS batch_id FROM holdfast.batch WHERE batch.stream = stream.name AND query_id = %(query_id)s
) AS written
WHERE stream.name <> %(stream)s AND written.batch_id IS NOT NULL
ORDER BY stream.name LIMIT 1
