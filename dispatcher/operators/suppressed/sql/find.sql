-- The decision that a batch suppressed under a key, with its content; no row if it was written, or its partition was dropped.
-- Uses pk_suppressed of the one partition that holds the batch's moment, pk_subject.
SELECT x.subject_id, s.name AS subject, x.type, x.occurred_at, x.priority, x.traceparent, x.cause::text AS cause,
       x.suppressed_at, x.key_parts, x.data
FROM holdfast.suppressed x
JOIN holdfast.subject s ON s.id = x.subject_id
WHERE x.batch_no = %(batch_no)s AND x.key = %(key)s AND x.suppressed_at = %(written_at)s
