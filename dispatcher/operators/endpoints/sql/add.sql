-- Adds an endpoint; without from_beginning it starts with batches that commit from now on: the trigger endpoint_start records
-- the existing ones, in a snapshot of its own. Unique by uq_endpoint_name; reads uq_batch_batch_no.
INSERT INTO holdfast.endpoint (
    name, url, types, secret_refs, allow_cidrs, headers, envelope, ca_ref, client_cert_ref, client_key_ref,
    connect_timeout_ms, total_timeout_ms, concurrency, rate_per_second, schedule_seconds, budget_seconds,
    breaker_threshold, slow_start_seconds, order_policy, inquiry_path, starts_at
)
VALUES (
    %(name)s, %(url)s, %(types)s, %(secret_refs)s, %(allow_cidrs)s::cidr[], %(headers)s,
    %(envelope)s::holdfast.envelope_style, %(ca_ref)s, %(client_cert_ref)s, %(client_key_ref)s,
    %(connect_timeout_ms)s, %(total_timeout_ms)s, %(concurrency)s, %(rate_per_second)s, %(schedule_seconds)s,
    %(budget_seconds)s, %(breaker_threshold)s, %(slow_start_seconds)s, %(order_policy)s::holdfast.order_policy,
    %(inquiry_path)s,
    CASE WHEN %(from_beginning)s THEN NULL ELSE clock_timestamp() END
)
RETURNING id, name, url, state, order_policy, starts_at
