-- Takes the subject's row until COMMIT, as the sink does: nobody else moves its transition states. Read them after it, by a
-- statement of its own. Uses pk_subject.
SELECT holdfast.lock_subject(%(subject_id)s)
