-- Records the approval of a plan that may repeat business actions.
-- Uses pk_replay.
UPDATE holdfast.replay
SET approved_by = %(actor)s, approved_at = now()
WHERE id = %(id)s
