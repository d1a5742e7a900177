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
