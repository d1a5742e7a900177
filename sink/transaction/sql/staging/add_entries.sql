-- Writes the numbered entries with their final bodies, all with the batch's timestamp; a null
-- traceparent becomes the batch's. Index: pk_entry (of the day's partition).
INSERT INTO holdfast.entry (
    subject_id, sequence, created_at, key, type, occurred_at, priority, batch_no, traceparent, body
)
SELECT
    numbered.subject_id,
    numbered.sequence,
    %(written_at)s,
    staged.key,
    staged.type,
    staged.occurred_at,
    staged.priority,
    %(batch_no)s,
    coalesce(staged.traceparent, %(traceparent)s),
    convert_to(staged.head || numbered.sequence || staged.tail, 'UTF8')
FROM pg_temp.holdfast_numbered AS numbered
JOIN pg_temp.holdfast_staged AS staged USING (ordinal)
ORDER BY numbered.subject_id, numbered.sequence
