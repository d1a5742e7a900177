-- Dismisses the open ones of some dead letters; the first resolution of a letter stays.
-- Uses pk_dead_letter.
UPDATE holdfast.dead_letter
SET resolution = 'dismissed', resolved_at = clock_timestamp(), resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id
