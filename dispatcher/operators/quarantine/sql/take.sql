-- Some quarantined rows with texts, in the order of their ids.
-- Uses pk_quarantine, uq_batch_batch_no.
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by, q.row
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE q.id = ANY (%(ids)s::bigint[])
ORDER BY q.id
