-- The open quarantined rows of a stream, by reason.
-- Uses pk_batch for the batches that have any, then ix_quarantine_batch_no.
SELECT q.reason::text AS reason, count(*) AS open, min(q.quarantined_at) AS oldest_quarantined_at
FROM holdfast.batch b
JOIN holdfast.quarantine q ON q.batch_no = b.batch_no
WHERE b.stream = %(stream)s AND b.quarantined_count > 0 AND q.resolution IS NULL
GROUP BY q.reason
ORDER BY count(*) DESC, q.reason
