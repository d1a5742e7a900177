-- Suppressed decisions of one subject without content, the newest batch first, before a position (batch, key) if given.
-- Uses ix_suppressed_subject_id backwards, of the days between the two times, and uq_batch_batch_no.
SELECT x.key, x.type, x.occurred_at, x.priority, x.cause::text AS cause, x.suppressed_at, x.batch_no,
       b.stream, b.query_id, b.batch_id
FROM holdfast.suppressed x
JOIN holdfast.batch b USING (batch_no)
WHERE x.subject_id = %(subject_id)s
  AND x.suppressed_at >= %(since)s::timestamptz AND x.suppressed_at < %(until)s::timestamptz
  AND (%(cause)s::holdfast.suppressed_cause IS NULL OR x.cause = %(cause)s::holdfast.suppressed_cause)
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(before_batch_no)s::bigint IS NULL
       OR (x.batch_no, x.key) < (%(before_batch_no)s::bigint, %(before_key)s::uuid))
ORDER BY x.batch_no DESC, x.key DESC
LIMIT %(limit)s
