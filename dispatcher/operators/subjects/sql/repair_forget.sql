-- Deletes the transition state of a locked subject in a stream: its next decision there is always written.
-- Uses pk_transition.
DELETE FROM holdfast.transition
WHERE subject_id = %(subject_id)s AND stream = %(stream)s
