-- What a comparison needs of an endpoint in any state: identity and connection settings.
-- Uses uq_endpoint_name.
SELECT p.id, p.name, p.url, p.state::text AS state, p.secret_refs, p.allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.schedule_seconds, p.order_policy::text AS order_policy,
       p.envelope::text AS envelope, p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref, p.rate_per_second,
       p.budget_seconds, p.breaker_threshold, p.slow_start_seconds, p.inquiry_path
FROM holdfast.endpoint p
WHERE p.name = %(name)s
