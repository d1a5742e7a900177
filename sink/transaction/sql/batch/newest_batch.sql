-- The newest batch of a query in the ledger, and in another stream that this start of the query does not write (two sinks of
-- one query do); null where there is none. The first stays valid until COMMIT, because the stream is locked. Index: pk_batch.
SELECT newest.batch_id, other.stream AS other_stream, other.batch_id AS other_batch_id
FROM (
    SELECT max(batch_id) AS batch_id
    FROM holdfast.batch
    WHERE stream = %(stream)s AND query_id = %(query_id)s
) AS newest
LEFT JOIN (
    SELECT stream.name AS stream, written.batch_id
    FROM holdfast.stream
    CROSS JOIN LATERAL (
        SELECT max(batch_id) AS batch_id
        FROM holdfast.batch
        WHERE batch.stream = stream.name AND query_id = %(query_id)s
    ) AS written
    WHERE stream.name <> %(stream)s AND stream.run_id IS DISTINCT FROM %(run_id)s AND written.batch_id IS NOT NULL
    ORDER BY stream.name
    LIMIT 1
) AS other ON newest.batch_id IS NULL
