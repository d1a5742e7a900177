-- Entries of a batch without bodies, by subject and sequence, after a position.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment, pk_subject.
SELECT e.key, s.name AS subject, e.subject_id, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority
FROM holdfast.entry e
JOIN holdfast.subject s ON s.id = e.subject_id
WHERE e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s
  AND (%(subject)s::text IS NULL OR s.name = %(subject)s::text)
  AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
  AND (e.subject_id, e.sequence) > (%(after_subject_id)s::bigint, %(after_sequence)s::bigint)
ORDER BY e.subject_id, e.sequence
LIMIT %(limit)s
