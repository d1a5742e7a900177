-- The newest decision of a subject over all streams: sequence, type, time.
-- Uses pk_subject, pk_transition.
SELECT s.last_sequence, newest.last_type, newest.last_occurred_at
FROM holdfast.subject s
LEFT JOIN LATERAL (
    SELECT t.last_type, t.last_occurred_at
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
    ORDER BY t.updated_at DESC
    LIMIT 1
) newest ON true
WHERE s.id = %(subject_id)s
