-- The entries of keys; none for a key whose entry is not stored.
-- Uses pk_entry_key, uq_batch_batch_no, ix_entry_batch_no of the partition that holds the batch's moment.
INSERT INTO pg_temp.holdfast_candidate (subject_id, sequence, created_at, key, type, batch_no)
SELECT e.subject_id, e.sequence, e.created_at, e.key, e.type, e.batch_no
FROM holdfast.entry_key k
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.entry e ON e.batch_no = b.batch_no AND e.created_at = b.written_at AND e.key = k.key
WHERE k.key = ANY (%(keys)s::uuid[])
  AND (%(subject)s::text IS NULL
       OR e.subject_id = (SELECT s.id FROM holdfast.subject s WHERE s.name = %(subject)s::text))
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text
       AND b.batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0) AND coalesce(%(last_batch)s::bigint, 9223372036854775807))
  AND e.created_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND e.created_at < coalesce(%(until)s::timestamptz, 'infinity')
  AND (cardinality(%(types)s::text[]) = 0 OR e.type = ANY (%(types)s::text[]))
