-- The entry that a batch wrote under a key; no row if it was suppressed, or its partition was dropped.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment, pk_subject.
SELECT e.subject_id, s.name AS subject, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.traceparent,
       convert_from(e.body, 'UTF8') AS body
FROM holdfast.entry e
JOIN holdfast.subject s ON s.id = e.subject_id
WHERE e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s AND e.key = %(key)s
