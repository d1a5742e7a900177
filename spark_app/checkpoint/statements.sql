-- name: read_frontier
-- The newest published window of a stream in microseconds, 0 before the first one.
-- Index: ix_exposure_window_end.
SELECT coalesce((extract(epoch FROM max(window_end)) * 1000000)::bigint, 0)
FROM holdfast.exposure_window
WHERE stream = %(stream)s


-- name: read_holds
-- The merchants that the stream holds, each with its newest published window. A block commits with its window.
-- Index: pk_exposure_window, pk_subject; scans all of transition.
SELECT subject.name, (extract(epoch FROM newest.window_end) * 1000000)::bigint
FROM holdfast.transition
JOIN holdfast.subject ON subject.id = transition.subject_id
CROSS JOIN LATERAL (
    SELECT window_end
    FROM holdfast.exposure_window
    WHERE stream = %(stream)s AND merchant_id = subject.name
    ORDER BY window_end DESC
    LIMIT 1
) AS newest
WHERE transition.stream = %(stream)s AND transition.last_type = %(block)s


-- name: read_newer_query
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


-- name: read_newest_batch
-- The newest batch of a query in the ledger.
-- Index: pk_batch.
SELECT max(batch_id) FROM holdfast.batch WHERE stream = %(stream)s AND query_id = %(query_id)s


-- name: read_other_stream
-- Another stream that has batches of a query, and the newest of them; no row where there is none.
-- Index: pk_batch.
SELECT stream.name, written.batch_id
FROM holdfast.stream
CROSS JOIN LATERAL (
    SELECT max(batch_id) AS batch_id FROM holdfast.batch WHERE batch.stream = stream.name AND query_id = %(query_id)s
) AS written
WHERE stream.name <> %(stream)s AND written.batch_id IS NOT NULL
ORDER BY stream.name LIMIT 1


-- name: read_past
-- The published past of a stream: the query it has adopted, whether the given query has written a batch, and its newest
-- published window. Index: pk_stream, pk_batch, ix_exposure_window_end.
SELECT
    (SELECT query_id FROM holdfast.stream WHERE name = %(stream)s) AS adopted,
    EXISTS (
        SELECT FROM holdfast.batch WHERE stream = %(stream)s AND query_id = %(query_id)s
    ) AS recorded,
    (
        SELECT (extract(epoch FROM max(window_end)) * 1000000)::bigint
        FROM holdfast.exposure_window
        WHERE stream = %(stream)s
    ) AS frontier_us
