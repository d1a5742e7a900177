-- Locks an endpoint and returns its settings. The lock does not block new lanes that refer to it.
-- Uses uq_endpoint_name.
SELECT id, state::text AS state, url, types, secret_refs, allow_cidrs::text[] AS allow_cidrs, headers,
       envelope::text AS envelope, ca_ref, client_cert_ref, client_key_ref, connect_timeout_ms, total_timeout_ms,
       concurrency, rate_per_second, schedule_seconds, budget_seconds, breaker_threshold, slow_start_seconds,
       order_policy::text AS order_policy, inquiry_path
FROM holdfast.endpoint
WHERE name = %(name)s
FOR NO KEY UPDATE
