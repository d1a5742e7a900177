-- Another query of a stream that has written batches after the newest one of this query; none where this query has no batch.
-- The batch with which a continued checkpoint is adopted has no run. Finds the queries of the stream one by one. Index: pk_batch.
WITH RECURSIVE queries AS (
    (
        SELECT query_id FROM holdfast.batch WHERE stream = %(stream)s
        ORDER BY query_id LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT b.query_id FROM holdfast.batch AS b
        WHERE b.stream = %(stream)s AND b.query_id > q.query_id
        ORDER BY b.query_id LIMIT 1
    )
    FROM queries AS q WHERE q.query_id IS NOT NULL
)
SELECT q.query_id, newest.batch_id
FROM queries AS q
CROSS JOIN LATERAL (
    SELECT b.batch_id, b.batch_no, b.run_id FROM holdfast.batch AS b
    WHERE b.stream = %(stream)s AND b.query_id = q.query_id
    ORDER BY b.batch_id DESC LIMIT 1
) AS newest
WHERE q.query_id <> %(query_id)s
    AND newest.run_id <> '00000000-0000-0000-0000-000000000000'
    AND newest.batch_no > (
        SELECT own.batch_no FROM holdfast.batch AS own
        WHERE own.stream = %(stream)s AND own.query_id = %(query_id)s
        ORDER BY own.batch_id DESC LIMIT 1
    )
ORDER BY newest.batch_no DESC LIMIT 1
