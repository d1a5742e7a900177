-- name: copy_late_events
-- Streams the events that were not applied: late, future-dated, duplicates, settled.
-- Index: pk_late_event, ix_late_event_merchant.
COPY holdfast.late_event
    (reason, event_id, merchant_id, type, amount_minor, currency, occurred_at, watermark, stream)
FROM STDIN (FORMAT csv)


-- name: copy_windows
-- Streams the windows that a batch emitted.
-- No index.
COPY pg_temp.exposure_window_batch
    (merchant_id, window_start, window_end, revision, exposure_minor, currency, policy_version)
FROM STDIN (FORMAT csv)


-- name: create_window_batch
-- The table for a batch's emitted windows; dropped at COMMIT, as a pooled session requires.
-- No index: the upsert reads all of it once.
CREATE TEMPORARY TABLE IF NOT EXISTS exposure_window_batch (
    merchant_id    text        NOT NULL,
    window_start   timestamptz NOT NULL,
    window_end     timestamptz NOT NULL,
    revision       integer     NOT NULL,
    exposure_minor bigint      NOT NULL,
    currency       text        NOT NULL,
    policy_version text        NOT NULL
) ON COMMIT DROP


-- name: upsert_windows
-- Stores the newest emission of each window. A published revision never decreases: an adopted checkpoint does not emit it
-- again, and one that recomputes the stream in other batches does not replace it. Index: pk_exposure_window.
INSERT INTO holdfast.exposure_window AS kept
    (stream, merchant_id, window_end, window_start, revision, exposure_minor, currency, policy_version)
SELECT DISTINCT ON (merchant_id, window_end)
    %(stream)s, merchant_id, window_end, window_start, revision, exposure_minor, currency, policy_version
FROM pg_temp.exposure_window_batch
ORDER BY merchant_id, window_end, revision DESC
ON CONFLICT ON CONSTRAINT pk_exposure_window DO UPDATE SET
    revision = excluded.revision,
    exposure_minor = excluded.exposure_minor,
    currency = excluded.currency,
    policy_version = excluded.policy_version,
    written_at = excluded.written_at
WHERE kept.revision < excluded.revision
