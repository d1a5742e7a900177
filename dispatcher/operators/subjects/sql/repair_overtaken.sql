-- The overtaken decisions of a subject in a stream since a moment, the oldest first, and their total.
-- Uses ix_suppressed_subject_id of the days from the moment on, uq_batch_batch_no.
SELECT x.key, x.type, x.occurred_at, x.suppressed_at, b.stream, b.batch_id, count(*) OVER () AS count
FROM holdfast.suppressed x
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.stream s ON s.name = b.stream
WHERE x.subject_id = %(subject_id)s AND x.cause = 'overtaken' AND x.suppressed_at >= %(ahead_since)s
  AND coalesce(s.acts_for, s.name) = %(stream)s
ORDER BY x.suppressed_at, x.occurred_at, x.key
LIMIT %(limit)s
