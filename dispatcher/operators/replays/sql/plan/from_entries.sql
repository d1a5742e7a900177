-- The entries of a subject, a stream's batches, a time range, or types; without a time range, of all partitions.
-- Uses pk_entry for a subject, else ix_entry_batch_no or a scan of the partitions in range.
INSERT INTO pg_temp.holdfast_candidate (subject_id, sequence, created_at, key, type, batch_no)
SELECT e.subject_id, e.sequence, e.created_at, e.key, e.type, e.batch_no
FROM holdfast.entry e
WHERE (%(subject)s::text IS NULL
       OR e.subject_id = (SELECT s.id FROM holdfast.subject s WHERE s.name = %(subject)s::text))
  AND (%(stream)s::text IS NULL OR e.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s
       AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
       AND EXISTS (SELECT FROM holdfast.batch b
                    WHERE b.batch_no = e.batch_no AND b.stream = %(stream)s::text
                      AND b.batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0)
                                         AND coalesce(%(last_batch)s::bigint, 9223372036854775807)))
  AND e.created_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND e.created_at < coalesce(%(until)s::timestamptz, 'infinity')
  AND (cardinality(%(types)s::text[]) = 0 OR e.type = ANY (%(types)s::text[]))
