-- A diverged replay row by row, beside the stored entries of the batch.
-- Uses pk_divergence_row; ix_entry_batch_no of the one partition that holds the batch's moment, pk_subject.
SELECT r.key, r.side::text AS side,
       coalesce(r.subject, s.name) AS subject, s.name AS subject_then,
       coalesce(r.type, e.type) AS type, e.type AS type_then, e.sequence,
       coalesce(r.occurred_at, e.occurred_at) AS occurred_at,
       convert_from(e.body, 'UTF8') AS body_then, r.body AS body_now
FROM (
    SELECT * FROM holdfast.divergence_row
    WHERE divergence_id = %(id)s
    ORDER BY side, key
    LIMIT %(limit)s
) r
LEFT JOIN holdfast.entry e
  ON e.key = r.key AND e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s
LEFT JOIN holdfast.subject s ON s.id = e.subject_id
ORDER BY r.side, r.key
