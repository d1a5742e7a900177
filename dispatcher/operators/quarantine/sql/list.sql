-- Quarantined rows without texts, the newest first, before an id if given.
-- Uses pk_quarantine, uq_batch_batch_no.
SELECT q.id, b.stream, b.query_id, b.batch_id, q.batch_no, q.reason::text AS reason, q.detail, q.quarantined_at,
       q.resolution::text AS resolution, q.resolved_at, q.resolved_by
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::holdfast.quarantine_reason IS NULL OR q.reason = %(reason)s::holdfast.quarantine_reason)
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)
  AND (%(before)s::bigint IS NULL OR q.id < %(before)s::bigint)
ORDER BY q.id DESC
LIMIT %(limit)s
