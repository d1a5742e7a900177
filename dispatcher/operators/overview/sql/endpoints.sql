-- The state of each endpoint: breaker, due lanes (at most 10,000 of a priority) and the age of the first, leased lanes.
-- Walks ix_lane_due from priority to priority; ix_lane_leased, pk_endpoint_pace.
WITH RECURSIVE step AS (
    SELECT p.id AS endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.token IS NULL AND l.due_at IS NOT NULL
    ) AS priority
    FROM holdfast.endpoint p
    UNION ALL
    SELECT s.endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.token IS NULL AND l.due_at IS NOT NULL
          AND l.priority > s.priority
    )
    FROM step s
    WHERE s.priority IS NOT NULL
),
waiting AS (
    SELECT s.endpoint_id, sum(due.lanes)::bigint AS lanes, min(due.oldest) AS oldest
    FROM step s
    CROSS JOIN LATERAL (
        SELECT count(*) AS lanes, min(first.due_at) AS oldest
        FROM (
            SELECT l.due_at FROM holdfast.lane l
            WHERE l.endpoint_id = s.endpoint_id AND l.priority = s.priority AND l.token IS NULL AND l.due_at <= now()
            ORDER BY l.due_at
            LIMIT 10000
        ) first
    ) due
    GROUP BY s.endpoint_id
),
leased AS (
    SELECT l.endpoint_id, count(*) AS lanes
    FROM holdfast.lane l
    WHERE l.token IS NOT NULL
    GROUP BY l.endpoint_id
)
SELECT p.name, p.state::text AS state, p.state_reason,
       r.breaker::text AS breaker, r.breaker_since, r.breaker_until, r.breaker_reason,
       CASE WHEN r.breaker IN ('open', 'half_open')
            -- Each failed probe opens it again; stalled_since is when it opened first.
            THEN extract(epoch FROM now() - coalesce(r.stalled_since, r.breaker_since))::double precision
       END AS breaker_open_seconds,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until,
       coalesce(w.lanes, 0) AS due_lanes,
       coalesce(extract(epoch FROM now() - w.oldest), 0)::double precision AS oldest_due_age_seconds,
       coalesce(leased.lanes, 0) AS leased_lanes,
       -- Same rule as `why`: an endpoint with a rate limit may have due lanes for long, but claims advance `paid_until`.
       coalesce(p.state = 'active' AND r.breaker = 'closed' AND leased.lanes IS NULL
                AND (r.held_until IS NULL OR r.held_until <= now()) AND w.oldest < now() - interval '2 minutes'
                AND (p.rate_per_second IS NULL OR r.paid_until < now() - interval '1 minute'), false) AS not_claimed
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
LEFT JOIN waiting w ON w.endpoint_id = p.id
LEFT JOIN leased ON leased.endpoint_id = p.id
ORDER BY p.name
