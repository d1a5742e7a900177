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
