-- Every endpoint that is not disabled, with its receiver's key-retention window.
-- Uses pk_endpoint, pk_endpoint_pace; a handful of rows.
SELECT p.id, p.name, p.url, p.state::text AS state, p.secret_refs, p.allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.schedule_seconds, p.order_policy::text AS order_policy,
       p.envelope::text AS envelope, p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref, p.rate_per_second,
       p.budget_seconds, p.breaker_threshold, p.slow_start_seconds, p.inquiry_path,
       e.key_window_seconds, e.key_window_seen_at
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
WHERE p.state <> 'disabled'
ORDER BY p.id
