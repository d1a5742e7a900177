-- The transition state of a subject in a stream.
-- Uses pk_transition.
SELECT last_type, last_occurred_at, updated_at
FROM holdfast.transition
WHERE subject_id = %(subject_id)s AND stream = %(stream)s
