-- Records attempts, in the transaction that settles their lanes.
-- Unique by pk_attempt.
COPY holdfast.attempt (
    endpoint_id, subject_id, sequence, number, finished_at, token, outcome, status, duration_ms,
    error, response, receipt, retry_at
) FROM STDIN
