-- Streams the numbered entries with their final bodies, all with the batch's timestamp.
-- Index: pk_entry (of the day's partition).
COPY holdfast.entry (
    subject_id, sequence, created_at, key, type, occurred_at, priority, batch_no, traceparent, body
) FROM STDIN (FORMAT binary)
