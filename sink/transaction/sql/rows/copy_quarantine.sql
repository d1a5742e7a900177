-- Streams the quarantined rows.
-- Index: pk_quarantine, ix_quarantine_batch_no.
COPY holdfast.quarantine (batch_no, reason, detail, row, quarantined_at) FROM STDIN (FORMAT csv)
