-- Locks rows until COMMIT, in the order of their ids, so that nobody else resolves them.
-- Uses pk_quarantine.
SELECT q.id, q.resolution::text AS resolution, q.resolved_at, q.resolved_by
FROM holdfast.quarantine q
WHERE q.id = ANY (%(ids)s::bigint[])
ORDER BY q.id
FOR UPDATE OF q
