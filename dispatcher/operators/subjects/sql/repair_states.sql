-- The transition states of a subject beside its stored entries: the type of the newest entry, which receivers have applied; the
-- latest time up to the limit; when the first entry after the limit was written.
-- Uses pk_transition, pk_entry of the subject, uq_batch_batch_no.
SELECT t.stream, t.last_type, t.last_occurred_at, t.updated_at, t.last_occurred_at > given.latest AS ahead, given.latest,
       stored.last_type AS stored_type, stored.last_occurred_at AS stored_occurred_at,
       coalesce(stored.ahead_since, t.updated_at) AS ahead_since
FROM holdfast.transition t
CROSS JOIN (SELECT clock_timestamp() + %(tolerance)s::interval AS latest) given
CROSS JOIN LATERAL (
    SELECT (array_agg(e.type ORDER BY e.sequence DESC))[1] AS last_type,
           max(e.occurred_at) FILTER (WHERE e.occurred_at <= given.latest) AS last_occurred_at,
           min(e.created_at) FILTER (WHERE e.occurred_at > given.latest) AS ahead_since
    FROM holdfast.entry e
    JOIN holdfast.batch b USING (batch_no)
    JOIN holdfast.stream s ON s.name = b.stream
    WHERE e.subject_id = t.subject_id AND coalesce(s.acts_for, s.name) = t.stream
) stored
WHERE t.subject_id = %(subject_id)s
ORDER BY t.stream
