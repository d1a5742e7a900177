-- Resolves the open ones of some dead letters, because their decision was reissued under another key.
-- Uses pk_dead_letter.
UPDATE holdfast.dead_letter
SET resolution = 'reissued', resolved_at = clock_timestamp(), resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id
