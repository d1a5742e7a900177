-- What a comparison needs of an endpoint in any state: identity and connection settings.
-- Uses uq_endpoint_name.
SELECT p.id, p.name, p.url, p.secret_refs, p.allow_cidrs, p.connect_timeout_ms, p.total_timeout_ms, p.concurrency,
       p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref, p.schedule_seconds,
       p.order_policy::text AS order_policy
FROM holdfast.endpoint p
WHERE p.name = %(name)s
