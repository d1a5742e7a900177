-- A stream, locked until COMMIT: what it has adopted, since when, and where its checkpoint was last seen.
-- Uses pk_stream.
SELECT name, query_id, query_id AS previous_query_id, epoch, checkpoint, adopted_at
FROM holdfast.stream
WHERE name = %(stream)s
FOR NO KEY UPDATE
