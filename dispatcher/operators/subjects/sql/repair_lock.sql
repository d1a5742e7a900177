-- Locks the subject's row until COMMIT, as the sink does, so that nobody else moves its transition states. Read them afterwards,
-- in a statement of its own. Uses pk_subject.
SELECT holdfast.lock_subject(%(subject_id)s)
