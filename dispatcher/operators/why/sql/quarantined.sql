-- The quarantined rows, among the newest 10,000, that contain a text, the newest first.
-- Uses pk_quarantine backwards, uq_batch_batch_no.
SELECT q.id, q.reason::text AS reason, q.quarantined_at, q.resolution::text AS resolution, b.stream, b.batch_id
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE q.id > (SELECT coalesce(max(id), 0) - 10000 FROM holdfast.quarantine)
  AND (position(%(text)s::text IN q.row) > 0 OR position(%(text)s::text IN q.detail) > 0)
ORDER BY q.id DESC
LIMIT 5
