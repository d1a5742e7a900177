-- A stream, locked until COMMIT: its adopted query id, its checkpoint's last known path, and the stream that it acts for.
-- Uses pk_stream.
SELECT name, query_id, query_id AS previous_query_id, epoch, checkpoint, adopted_at,
    acts_for
FROM holdfast.stream
WHERE name = %(stream)s
FOR NO KEY UPDATE
