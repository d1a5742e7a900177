-- The newest published window of a stream in microseconds, 0 before the first one.
-- Index: ix_exposure_window_end.
SELECT coalesce((extract(epoch FROM max(window_end)) * 1000000)::bigint, 0)
FROM holdfast.exposure_window
WHERE stream = %(stream)s
