-- name: read_since
-- The batches of a query after one of them, with their plans, and the checkpoint of the stream's newest run.
-- Index: pk_batch, pk_stream.
SELECT b.batch_id, b.digest, b.source_offsets, s.checkpoint
FROM holdfast.batch AS b
JOIN holdfast.stream AS s ON s.name = b.stream
WHERE b.stream = %(stream)s AND b.query_id = %(query_id)s AND b.batch_id > %(after)s
ORDER BY b.batch_id
