-- Locks a replay for a change of its state.
-- Uses pk_replay.
SELECT id, verb::text AS verb, state::text AS state
FROM holdfast.replay
WHERE id = %(id)s
FOR UPDATE
