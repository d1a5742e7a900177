-- The transition state that a stream's decisions about a subject are compared with; no row without one.
-- Uses pk_stream, pk_transition.
SELECT t.stream, t.last_type, t.last_occurred_at, t.updated_at
FROM holdfast.stream s
JOIN holdfast.transition t ON t.stream = coalesce(s.acts_for, s.name)
WHERE s.name = %(stream)s AND t.subject_id = %(subject_id)s
