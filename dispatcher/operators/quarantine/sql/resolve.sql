-- Resolves the named rows that are open; a row is resolved once, and who did it first stays.
-- Uses pk_quarantine.
UPDATE holdfast.quarantine
SET resolution = %(resolution)s::holdfast.quarantine_resolution, resolved_at = clock_timestamp(),
    resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id
