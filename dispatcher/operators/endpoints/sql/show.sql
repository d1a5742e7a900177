-- Everything about one endpoint: settings, pace and backlog; each count has a limit.
-- Uses uq_endpoint_name, pk_endpoint_pace, ix_lane_due, ix_lane_leased, uq_dead_letter_open and pk_lane.
SELECT p.id, p.name, p.url, p.state, p.state_reason, p.types, p.starts_at, p.envelope, p.headers, p.secret_refs,
       p.ca_ref, p.client_cert_ref, p.client_key_ref, p.allow_cidrs::text[] AS allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.rate_per_second, p.schedule_seconds, p.budget_seconds,
       p.order_policy, p.breaker_threshold, p.slow_start_seconds, p.inquiry_path,
       e.key_window_seconds, e.key_window_seen_at,
       e.breaker, e.breaker_since, e.breaker_until, e.breaker_reason, e.failures,
       CASE WHEN e.held_until > now() THEN e.held_until END AS held_until,
       p.created_at, p.updated_at,
       (SELECT count(*)
          FROM (SELECT FROM holdfast.lane l
                 WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL LIMIT %(most)s) due
       ) AS waiting_lanes,
       (SELECT count(*) FROM holdfast.lane l WHERE l.endpoint_id = p.id AND l.token IS NOT NULL) AS leased_lanes,
       dead.lanes AS stopped_lanes, dead.letters AS dead_letters
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
CROSS JOIN LATERAL (
    SELECT count(*) AS letters, count(DISTINCT l.subject_id) AS lanes
    FROM (
        SELECT d.endpoint_id, d.subject_id
        FROM holdfast.dead_letter d
        WHERE d.endpoint_id = p.id AND d.resolution IS NULL
        ORDER BY d.endpoint_id, d.subject_id
        LIMIT %(most)s
    ) d
    -- Every stopped lane has an open dead letter.
    LEFT JOIN LATERAL (
        SELECT l.subject_id
        FROM holdfast.lane l
        WHERE l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
          AND l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < l.last_sequence
        LIMIT 1
    ) l ON true
) dead
WHERE p.name = %(name)s
