-- Resolves the named dead letters that are open, because their decision was made anew under another key.
-- Uses pk_dead_letter.
UPDATE holdfast.dead_letter
SET resolution = 'reissued', resolved_at = clock_timestamp(), resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id
