-- Every endpoint that has lanes to serve, now or later.
-- Uses pk_endpoint; a handful of rows.
SELECT id, name, url, state::text AS state, secret_refs, allow_cidrs, connect_timeout_ms, total_timeout_ms,
       concurrency, schedule_seconds, order_policy::text AS order_policy,
       envelope::text AS envelope, headers, ca_ref, client_cert_ref, client_key_ref, rate_per_second, budget_seconds,
       breaker_threshold, slow_start_seconds
FROM holdfast.endpoint
WHERE state <> 'disabled'
ORDER BY id
