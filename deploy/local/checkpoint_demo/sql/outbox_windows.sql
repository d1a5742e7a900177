-- Returns the newest revision of every emitted window.
-- No index: the demo's table is small, and read whole.
SELECT merchant_id, extract(epoch FROM window_end)::bigint * 1000000 AS window_end, revision, exposure_minor
  FROM holdfast.exposure_window
 ORDER BY merchant_id, window_end
