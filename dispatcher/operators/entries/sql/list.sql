-- Entries of a run of batches without bodies, the newest first, before a position (batch, subject, sequence) if given.
-- Uses ix_entry_batch_no of the partitions between the two moments, then uq_batch_batch_no, pk_subject.
SELECT e.key, s.name AS subject, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.batch_no, e.subject_id,
       b.stream, b.query_id, b.batch_id
FROM (
    SELECT e.key, e.subject_id, e.sequence, e.type, e.occurred_at, e.created_at, e.priority, e.batch_no
    FROM holdfast.entry e
    WHERE e.batch_no BETWEEN %(first_batch_no)s
          -- A bound of its own: a BRIN index cannot use a comparison of rows.
          AND least(%(last_batch_no)s, coalesce(%(before_batch_no)s::bigint, %(last_batch_no)s))
      -- An entry has its batch's moment; as a range, it prunes partitions.
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
      AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
      AND (%(stream)s::text IS NULL OR e.batch_no IN (
          SELECT b.batch_no FROM holdfast.batch b
          WHERE b.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s AND b.stream = %(stream)s::text))
      AND (%(before_batch_no)s::bigint IS NULL
           OR (e.batch_no, e.subject_id, e.sequence)
            < (%(before_batch_no)s::bigint, %(before_subject_id)s::bigint, %(before_sequence)s::bigint))
    ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC
    LIMIT %(limit)s
) e
JOIN holdfast.batch b ON b.batch_no = e.batch_no
JOIN holdfast.subject s ON s.id = e.subject_id
ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC
