-- name: endpoints
-- The endpoints that take entries of a type of a stream.
-- Reads all of endpoint, a small table.
SELECT p.name FROM holdfast.endpoint p
WHERE (p.types = '{}' OR %(type)s = ANY (p.types))
  AND (coalesce($streams(p.id), '{}') = '{}' OR %(stream)s = ANY ($streams(p.id)::text[]))
ORDER BY p.name


-- name: is_audited
-- Whether the audit trail has the decision of a key about its subject.
-- Uses ix_operator_action_target.
SELECT EXISTS (
    SELECT FROM holdfast.operator_action WHERE target = %(target)s AND detail ->> 'key' = %(key)s
) AS is_audited


-- name: stream
-- A stream: the one that it acts for, whether an exposure job publishes its windows, and whether it has written an entry.
-- Index: pk_stream, ix_exposure_window_end, pk_batch.
SELECT s.name, s.acts_for,
       EXISTS (SELECT FROM holdfast.exposure_window w WHERE w.stream = s.name) AS publishes_windows,
       EXISTS (SELECT FROM holdfast.batch b WHERE b.stream = s.name AND b.entry_count > 0) AS has_decided
FROM holdfast.stream s
WHERE s.name = %(stream)s


-- name: written
-- When an entry of a key was recorded for a subject, and with which sequence; no row if it was not.
-- Uses pk_entry_key, uq_batch_batch_no, uq_subject_name, pk_entry of the subject.
SELECT b.stream, e.sequence, e.occurred_at, b.written_at
FROM holdfast.entry_key k
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.subject s ON s.name = %(subject)s
JOIN holdfast.entry e ON e.subject_id = s.id AND e.created_at = b.written_at AND e.key = k.key
WHERE k.key = %(key)s
