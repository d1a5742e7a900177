-- Streams the suppressed entries of a batch, all with the batch's timestamp.
-- Index: pk_suppressed, ix_suppressed_subject_id, ix_suppressed_overtaken (of the day's partition).
COPY holdfast.suppressed (
    batch_no, suppressed_at, subject_id, key, occurred_at, priority, type, cause, traceparent, key_parts, data
) FROM STDIN (FORMAT binary)
