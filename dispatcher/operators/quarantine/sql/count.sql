-- The number of rows that export.sql returns.
-- Scans quarantine, at best by ix_quarantine_open; uses uq_batch_batch_no.
SELECT count(*) AS count
FROM holdfast.quarantine q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(reason)s::holdfast.quarantine_reason IS NULL OR q.reason = %(reason)s::holdfast.quarantine_reason)
  AND (NOT %(open)s OR q.resolution IS NULL) AND (NOT %(resolved)s OR q.resolution IS NOT NULL)
