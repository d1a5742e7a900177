-- What there is to check in a time: batches with their entries, the highest subject, attempts if there is any.
-- Reads batch once; uses pk_subject.
SELECT count(*) AS batches, coalesce(sum(b.entry_count), 0)::bigint AS entries,
       coalesce(min(b.batch_no), 0) AS first_batch_no, coalesce(max(b.batch_no), 0) AS last_batch_no,
       coalesce((SELECT max(id) FROM holdfast.subject), 0) AS last_subject
FROM holdfast.batch b
WHERE b.written_at >= %(since)s AND b.written_at < %(until)s
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
