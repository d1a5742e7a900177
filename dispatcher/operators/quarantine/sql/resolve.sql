-- Resolves the open ones of some rows; the first resolution of a row stays.
-- Uses pk_quarantine.
UPDATE holdfast.quarantine
SET resolution = %(resolution)s::holdfast.quarantine_resolution, resolved_at = clock_timestamp(),
    resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id
