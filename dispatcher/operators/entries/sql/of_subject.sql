-- Entries of one subject without bodies, the newest first, below a sequence if given.
-- Uses pk_entry backwards, in the partitions between the two times, and uq_batch_batch_no.
SELECT e.key, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.batch_no, e.subject_id,
       b.stream, b.query_id, b.batch_id
FROM holdfast.entry e
JOIN holdfast.batch b USING (batch_no)
WHERE e.subject_id = %(subject_id)s
  AND (%(before_sequence)s::bigint IS NULL OR e.sequence < %(before_sequence)s::bigint)
  AND e.created_at >= %(since)s::timestamptz AND e.created_at < %(until)s::timestamptz
  AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(batch_no)s::bigint IS NULL OR e.batch_no = %(batch_no)s::bigint)
ORDER BY e.sequence DESC
LIMIT %(limit)s
