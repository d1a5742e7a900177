-- name: count
-- The number of rows that `export` returns.
-- Scans quarantine, at best by ix_quarantine_open; uses uq_batch_batch_no.
SELECT count(*) AS count
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::holdfast.quarantine_reason IS NULL OR q.reason = %(reason)s::holdfast.quarantine_reason)
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)


-- name: export
-- Quarantined rows with texts, the oldest first; read through a cursor in one snapshot.
-- Uses pk_quarantine, uq_batch_batch_no.
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by, q.row
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::holdfast.quarantine_reason IS NULL OR q.reason = %(reason)s::holdfast.quarantine_reason)
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)
ORDER BY q.id


-- name: list
-- Quarantined rows without texts, the newest first, before an id if given.
-- Uses pk_quarantine, uq_batch_batch_no.
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::holdfast.quarantine_reason IS NULL OR q.reason = %(reason)s::holdfast.quarantine_reason)
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)
  AND (%(before)s::bigint IS NULL OR q.id < %(before)s::bigint)
ORDER BY q.id DESC
LIMIT %(limit)s


-- name: lock
-- Locks rows until COMMIT, in the order of their ids, so that nobody else resolves them.
-- Uses pk_quarantine.
SELECT q.id, q.resolution::text AS resolution, q.resolved_at, q.resolved_by
FROM holdfast.quarantine q
WHERE q.id = ANY (%(ids)s::bigint[])
ORDER BY q.id
FOR UPDATE OF q


-- name: put_back
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


-- name: resolve
-- Resolves the open ones of some rows; the first resolution of a row stays.
-- Uses pk_quarantine.
UPDATE holdfast.quarantine
SET resolution = %(resolution)s::holdfast.quarantine_resolution, resolved_at = clock_timestamp(),
    resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id


-- name: take
-- Some quarantined rows with texts, in the order of their ids.
-- Uses pk_quarantine, uq_batch_batch_no.
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by, q.row
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE q.id = ANY (%(ids)s::bigint[])
ORDER BY q.id
