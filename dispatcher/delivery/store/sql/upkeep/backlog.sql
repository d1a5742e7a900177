-- The backlog of each endpoint that is not disabled: due lanes (at most 10,000 per priority), the age in seconds of the one
-- that has been due longest, and its breaker. Scans ix_lane_due, one priority after the other.
WITH RECURSIVE step AS (
    SELECT p.id AS endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.token IS NULL AND l.due_at IS NOT NULL
    ) AS priority
    FROM holdfast.endpoint p
    WHERE p.state <> 'disabled'
    UNION ALL
    SELECT s.endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.token IS NULL AND l.due_at IS NOT NULL
          AND l.priority > s.priority
    )
    FROM step s
    WHERE s.priority IS NOT NULL
)
SELECT p.name, pace.breaker::text AS breaker,
       coalesce(sum(waiting.lanes), 0)::bigint AS due_lanes,
       coalesce(extract(epoch FROM now() - min(waiting.oldest)), 0)::double precision AS oldest_due_age_seconds
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace pace ON pace.endpoint_id = p.id
JOIN step s ON s.endpoint_id = p.id
LEFT JOIN LATERAL (
    SELECT count(*) AS lanes, min(due.due_at) AS oldest
    FROM (
        SELECT l.due_at FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.priority = s.priority AND l.token IS NULL AND l.due_at <= now()
        ORDER BY l.due_at
        LIMIT 10000
    ) due
) waiting ON true
GROUP BY p.name, pace.breaker
