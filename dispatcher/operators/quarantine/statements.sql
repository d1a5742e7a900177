-- name: count
-- The number of rows that `export` returns. Before revision 0033 no row has a rule: `rule` is then that of `older`.
-- Scans quarantine, at best by ix_quarantine_open; uses uq_batch_batch_no.
SELECT count(*) AS count
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::text IS NULL OR %(reason)s::text IN (q.reason::text, q.by_rule))
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)
  AND (%(since)s::timestamptz IS NULL OR q.quarantined_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR q.quarantined_at < %(until)s::timestamptz)


-- name: export
-- Quarantined rows with texts, the oldest first; read through a cursor in one snapshot.
-- Uses pk_quarantine, uq_batch_batch_no.
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.by_rule AS rule, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by, q.row
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::text IS NULL OR %(reason)s::text IN (q.reason::text, q.by_rule))
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)
  AND (%(since)s::timestamptz IS NULL OR q.quarantined_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR q.quarantined_at < %(until)s::timestamptz)
ORDER BY q.id


-- name: list
-- Quarantined rows without texts, the newest first, before an id if given.
-- Uses pk_quarantine, uq_batch_batch_no.
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.by_rule AS rule, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::text IS NULL OR %(reason)s::text IN (q.reason::text, q.by_rule))
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)
  AND (%(since)s::timestamptz IS NULL OR q.quarantined_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR q.quarantined_at < %(until)s::timestamptz)
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


-- name: matching
-- The oldest open rows of some reasons, without texts.
-- Uses ix_quarantine_open, uq_batch_batch_no.
SELECT q.id
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE q.resolution IS NULL AND q.reason = ANY (%(reasons)s::holdfast.quarantine_reason[])
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::text IS NULL OR %(reason)s::text IN (q.reason::text, q.by_rule))
  AND (%(since)s::timestamptz IS NULL OR q.quarantined_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR q.quarantined_at < %(until)s::timestamptz)
ORDER BY q.id
LIMIT %(limit)s


-- name: alone_lock
-- Serialises what people resolve by a filter without a second person, until the transaction ends.
-- Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.quarantine'))


-- name: alone_used
-- The rows that a person began to resolve by filters within 24 hours without a second person.
-- Uses ix_operator_action_target.
SELECT coalesce(sum((detail ->> 'rows')::bigint), 0)::bigint AS used
FROM holdfast.operator_action
WHERE target = %(target)s AND detail ->> 'person' = %(person)s AND acted_at > now() - interval '24 hours'


-- name: put_back
-- The rows that have an entry in the outbox already, with its stream, named by the rule of holdfast.sink.contract.requeue.stream_of.
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
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.by_rule AS rule, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by, q.row
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE q.id = ANY (%(ids)s::bigint[])
ORDER BY q.id
