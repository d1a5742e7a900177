-- An entry by its subject and sequence, with its batch and the transaction that locks the batch.
-- Uses pk_entry, uq_batch_batch_no, pk_subject.
SELECT e.subject_id, s.name AS subject, e.sequence, e.created_at AS written_at, e.key, e.type, e.occurred_at,
       b.stream, b.query_id, b.batch_id, b.batch_no, b.written_at, b.routed_at, b.xmax::text AS xmax
FROM holdfast.entry e
JOIN holdfast.subject s ON s.id = e.subject_id
JOIN holdfast.batch b USING (batch_no)
WHERE e.subject_id = %(subject_id)s AND e.sequence = %(sequence)s
