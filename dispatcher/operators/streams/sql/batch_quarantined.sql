-- The quarantined rows of a batch, by reason.
-- Uses ix_quarantine_batch_no.
SELECT reason::text AS reason, count(*) AS rows, count(*) FILTER (WHERE resolution IS NULL) AS open
FROM holdfast.quarantine
WHERE batch_no = %(batch_no)s
GROUP BY reason
ORDER BY reason
