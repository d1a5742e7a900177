-- A subject by its name, with its newest transition state; no row for an unknown name.
-- Uses uq_subject_name, pk_transition.
SELECT s.id, s.name, s.last_sequence, newest.last_type, newest.last_occurred_at, s.last_created_at AS last_written_at
FROM holdfast.subject s
LEFT JOIN LATERAL (
    SELECT t.last_type, t.last_occurred_at
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
    ORDER BY t.updated_at DESC
    LIMIT 1
) newest ON true
WHERE s.name = %(subject)s
