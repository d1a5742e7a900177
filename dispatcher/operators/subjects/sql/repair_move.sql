-- Replaces the transition state of a locked subject in a stream.
-- Uses pk_transition.
UPDATE holdfast.transition
SET last_type = %(last_type)s, last_occurred_at = %(last_occurred_at)s
WHERE subject_id = %(subject_id)s AND stream = %(stream)s
