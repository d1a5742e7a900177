-- The replays whose id begins with some hex digits: at most two rows, to tell an ambiguous prefix.
-- Uses pk_replay.
SELECT id
FROM holdfast.replay
WHERE id BETWEEN rpad(%(digits)s::text, 32, '0')::uuid AND rpad(%(digits)s::text, 32, 'f')::uuid
LIMIT 2
