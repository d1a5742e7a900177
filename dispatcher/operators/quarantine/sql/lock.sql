-- The named rows as they are now, locked so that nobody else resolves them until COMMIT; in the order of their numbers.
-- Uses pk_quarantine.
SELECT q.id, q.resolution::text AS resolution, q.resolved_at, q.resolved_by
FROM holdfast.quarantine q
WHERE q.id = ANY (%(ids)s::bigint[])
ORDER BY q.id
FOR UPDATE OF q
