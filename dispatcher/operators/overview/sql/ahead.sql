-- Events of the last day that were late because the watermark of the job was ahead of the clock, among the newest N late events.
-- Uses pk_late_event backwards.
SELECT count(*) AS late_ahead, coalesce(array_agg(DISTINCT stream), '{}') AS ahead_streams,
       extract(epoch FROM max(watermark - written_at))::float8 AS ahead_seconds
FROM (SELECT stream, reason, watermark, written_at FROM holdfast.late_event ORDER BY id DESC LIMIT %(most)s) l
WHERE reason = 'late' AND watermark > written_at AND written_at > clock_timestamp() - interval '1 day'
