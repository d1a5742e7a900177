-- Streams the rows in which a replay differs from its batch.
-- Index: pk_divergence_row.
COPY holdfast.divergence_row (divergence_id, key, side, subject, type, occurred_at, body) FROM STDIN
