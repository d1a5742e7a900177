-- Streams the windows that a batch emitted.
-- No index.
COPY pg_temp.exposure_window_batch
    (merchant_id, window_start, window_end, revision, exposure_minor, currency, policy_version)
FROM STDIN (FORMAT csv)
