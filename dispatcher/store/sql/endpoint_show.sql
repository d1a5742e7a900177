-- Everything about one endpoint: its settings, its pace, its backlog.
-- Uses uq_endpoint_name, pk_endpoint_pace, pk_lane and uq_dead_letter_open.
SELECT p.id, p.name, p.url, p.state, p.state_reason, p.types, p.starts_at, p.envelope, p.headers, p.secret_refs,
       p.ca_ref, p.client_cert_ref, p.client_key_ref, p.allow_cidrs::text[] AS allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.rate_per_second, p.schedule_seconds, p.budget_seconds,
       p.order_policy, p.breaker_threshold, p.slow_start_seconds,
       e.breaker, e.breaker_since, e.breaker_until, e.breaker_reason, e.failures,
       CASE WHEN e.held_until > now() THEN e.held_until END AS held_until,
       p.created_at, p.updated_at,
       count(*) FILTER (WHERE l.due_at IS NOT NULL AND l.token IS NULL) AS waiting_lanes,
       count(*) FILTER (WHERE l.token IS NOT NULL) AS leased_lanes,
       count(*) FILTER (WHERE l.due_at IS NULL AND l.token IS NULL
                          AND l.delivered_sequence < l.last_sequence) AS stopped_lanes,
       (SELECT count(*) FROM holdfast.dead_letter d
         WHERE d.endpoint_id = p.id AND d.resolution IS NULL) AS dead_letters
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id
WHERE p.name = %(name)s
GROUP BY p.id, e.endpoint_id
