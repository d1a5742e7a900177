-- The latest suppressed decision of a subject after a moment, in the streams of one transition state, and their count.
-- Uses ix_suppressed_subject_id, uq_batch_batch_no, pk_stream.
SELECT x.key, x.type, x.occurred_at, x.cause::text AS cause, count(*) OVER () AS count
FROM holdfast.suppressed x
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.stream s ON s.name = b.stream
WHERE x.subject_id = %(subject_id)s AND x.occurred_at > %(occurred_at)s
  AND coalesce(s.acts_for, s.name) = (SELECT coalesce(o.acts_for, o.name) FROM holdfast.stream o WHERE o.name = %(stream)s)
ORDER BY x.occurred_at DESC, x.key DESC
LIMIT 1
