-- The rows that have an entry in the outbox already, with its stream, named by the rule of holdfast.sink.requeue.stream_of.
-- A job's own stream with such a name is excluded: its `acts_for` is null.
-- Uses pk_quarantine, uq_batch_batch_no, pk_stream, pk_batch.
SELECT q.id, w.stream
FROM holdfast.quarantine q
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.stream s ON s.name = CASE
    WHEN length(b.stream) <= 63 - length('.requeue') THEN b.stream
    ELSE left(b.stream, 63 - length('.requeue') - 17)
        || '-' || left(encode(sha256(convert_to(b.stream, 'UTF8')), 'hex'), 16)
END || '.requeue' AND s.acts_for IS NOT NULL
JOIN holdfast.batch w ON w.stream = s.name AND w.query_id = s.query_id AND w.batch_id = q.id
WHERE q.id = ANY (%(ids)s::bigint[])
ORDER BY q.id
