-- Lets a planned reissue happen; who planned it may not, and who approved it first stays.
-- Uses pk_replay.
UPDATE holdfast.replay
SET approved_by = %(actor)s, approved_at = now()
WHERE id = %(id)s AND state = 'planned' AND verb = 'reissue' AND approved_by IS NULL AND actor <> %(actor)s
RETURNING approved_at
