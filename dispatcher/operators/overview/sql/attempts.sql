-- The newest N attempts since a moment: counts by minute and outcome, percentiles of their duration.
-- Walks ix_attempt_finished_at backwards, partition by partition; groups by minute, outcome and duration.
WITH counted AS MATERIALIZED (
    SELECT date_bin('1 minute', finished_at, 'epoch') AS minute, outcome, duration_ms, count(*) AS attempts,
           min(finished_at) AS oldest
    FROM (
        SELECT finished_at, outcome, duration_ms
        FROM holdfast.attempt
        WHERE finished_at >= %(since)s::timestamptz
        ORDER BY finished_at DESC
        LIMIT %(most)s
    ) recent
    GROUP BY 1, 2, 3
),
lasting AS (
    SELECT duration_ms, sum(sum(attempts)) OVER (ORDER BY duration_ms) AS up_to, sum(sum(attempts)) OVER () AS timed
    FROM counted
    WHERE duration_ms IS NOT NULL
    GROUP BY duration_ms
)
SELECT whole.attempts, whole.oldest, whole.timed,
       -- As percentile_disc: the first duration that such a share does not exceed.
       (SELECT CASE WHEN count(*) > 0 THEN
                   ARRAY[min(duration_ms) FILTER (WHERE up_to >= 0.5 * timed),
                         min(duration_ms) FILTER (WHERE up_to >= 0.95 * timed),
                         min(duration_ms) FILTER (WHERE up_to >= 0.99 * timed)] END
          FROM lasting) AS durations,
       (SELECT coalesce(json_agg(json_build_array(extract(epoch FROM minute)::bigint / 60, outcome, attempts)), '[]')
          FROM (SELECT minute, outcome, sum(attempts)::bigint AS attempts FROM counted GROUP BY 1, 2) minutes
       ) AS minutes
FROM (
    SELECT coalesce(sum(attempts), 0)::bigint AS attempts, min(oldest) AS oldest,
           coalesce(sum(attempts) FILTER (WHERE duration_ms IS NOT NULL), 0)::bigint AS timed
    FROM counted
) whole
