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
