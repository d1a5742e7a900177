-- What waits at each endpoint that is not disabled: lanes due (10,000 of a priority at most), for how many seconds the
-- one that is due longest has been, and its breaker. Walks ix_lane_due from priority to priority.
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
