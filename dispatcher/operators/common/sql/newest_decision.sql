-- The newest decision of a subject by event time, with its entry if that is stored, and the transition state with which a
-- stream's decisions are compared; no row for an unknown subject. A decision counts if it is of that stream, or of another one
-- that decides the same: whose last type is equal up to its last dot.
-- Uses uq_subject_name, pk_stream, pk_transition, pk_entry of the subject.
SELECT s.last_sequence, newest.stream, coalesce(e.type, newest.last_type) AS type, newest.last_occurred_at AS occurred_at,
       e.sequence, e.key, own.last_type AS own_type, own.last_occurred_at AS own_occurred_at
FROM holdfast.subject s
LEFT JOIN holdfast.stream m ON m.name = %(stream)s
LEFT JOIN holdfast.transition own ON own.subject_id = s.id AND own.stream = coalesce(m.acts_for, m.name)
LEFT JOIN LATERAL (
    SELECT t.stream, t.last_type, t.last_occurred_at
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
      AND (t.stream = own.stream
           OR regexp_replace(t.last_type, '[.][^.]*$', '') = regexp_replace(%(type)s, '[.][^.]*$', ''))
    ORDER BY t.last_occurred_at DESC, t.updated_at DESC
    LIMIT 1
) newest ON true
LEFT JOIN LATERAL (
    SELECT type, sequence, key
    FROM holdfast.entry
    WHERE subject_id = s.id AND occurred_at = newest.last_occurred_at
    ORDER BY sequence DESC
    LIMIT 1
) e ON true
WHERE s.name = %(subject)s
