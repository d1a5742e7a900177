-- Releases a planned replay to the dispatchers.
-- Uses pk_replay.
UPDATE holdfast.replay
SET state = 'applying', applied_at = now(), counts = counts || %(counts)s
WHERE id = %(id)s
