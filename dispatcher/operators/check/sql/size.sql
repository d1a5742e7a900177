-- The size of a check: batches of a time range with their entries, and the highest subject id.
-- Reads batch once; uses pk_subject.
SELECT count(*) AS batches, coalesce(sum(b.entry_count), 0)::bigint AS entries,
       coalesce(min(b.batch_no), 0) AS first_batch_no, coalesce(max(b.batch_no), 0) AS last_batch_no,
       coalesce((SELECT max(id) FROM holdfast.subject), 0) AS last_subject
FROM holdfast.batch b
WHERE b.written_at >= %(since)s AND b.written_at < %(until)s
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
