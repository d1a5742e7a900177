-- I11: what an inbox applied in a time range after it had applied a later sequence of the same subject.
-- Reads the inbox of that time, by ix_inbox_received_at, and sorts it; the caller counts and keeps the first.
SELECT key, subject, sequence, outcome, body_sha256, received_at, highest
FROM (
    SELECT *, max(sequence) OVER (
        PARTITION BY subject ORDER BY received_at, sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
    FROM {schema}.inbox
    WHERE received_at >= %(since)s AND received_at < %(until)s AND outcome = 'applied'
) ordered
WHERE highest > sequence
