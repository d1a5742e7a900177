-- name: find
-- The decision that a batch suppressed under a key, with its content; no row if it was written, or its partition was dropped.
-- Uses pk_suppressed of the one partition that holds the batch's moment, pk_subject.
SELECT x.subject_id, s.name AS subject, x.type, x.occurred_at, x.priority, x.traceparent, x.cause::text AS cause,
       x.suppressed_at, x.key_parts, x.data
FROM holdfast.suppressed x
JOIN holdfast.subject s ON s.id = x.subject_id
WHERE x.batch_no = %(batch_no)s AND x.key = %(key)s AND x.suppressed_at = %(written_at)s


-- name: later
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


-- name: list
-- Suppressed decisions without content, the newest batch first, before a position (batch, key) if given.
-- Uses pk_suppressed backwards, or ix_suppressed_overtaken, of the days between the two times; uq_batch_batch_no, pk_subject.
SELECT x.key, s.name AS subject, x.type, x.occurred_at, x.priority, x.cause::text AS cause, x.suppressed_at, x.batch_no,
       b.stream, b.query_id, b.batch_id
FROM holdfast.suppressed x
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.subject s ON s.id = x.subject_id
WHERE x.suppressed_at >= %(since)s::timestamptz AND x.suppressed_at < %(until)s::timestamptz
  AND (%(cause)s::holdfast.suppressed_cause IS NULL OR x.cause = %(cause)s::holdfast.suppressed_cause)
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(before_batch_no)s::bigint IS NULL
       OR (x.batch_no, x.key) < (%(before_batch_no)s::bigint, %(before_key)s::uuid))
ORDER BY x.batch_no DESC, x.key DESC
LIMIT %(limit)s


-- name: of_subject
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


-- name: state
-- The transition state that a stream's decisions about a subject are compared with; no row without one.
-- Uses pk_stream, pk_transition.
SELECT t.stream, t.last_type, t.last_occurred_at, t.updated_at
FROM holdfast.stream s
JOIN holdfast.transition t ON t.stream = coalesce(s.acts_for, s.name)
WHERE s.name = %(stream)s AND t.subject_id = %(subject_id)s
