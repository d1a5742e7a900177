-- Streams the events that were not applied: late, future-dated, duplicates, settled.
-- Index: pk_late_event, ix_late_event_merchant.
COPY holdfast.late_event
    (reason, event_id, merchant_id, type, amount_minor, currency, occurred_at, watermark, stream)
FROM STDIN (FORMAT csv)
