-- Streams entries of one task attempt into the batch's stage; several may have one key.
-- No index.
COPY {stage} (
    attempt, row_hash, subject, type, key, occurred_at, priority, traceparent, head, tail,
    key_text, content
)
FROM STDIN (FORMAT csv)
