-- Sets every setting of an endpoint except its state.
-- Uses pk_endpoint.
UPDATE holdfast.endpoint
SET url = %(url)s, types = %(types)s, secret_refs = %(secret_refs)s, allow_cidrs = %(allow_cidrs)s::cidr[],
    headers = %(headers)s, envelope = %(envelope)s::holdfast.envelope_style, ca_ref = %(ca_ref)s,
    client_cert_ref = %(client_cert_ref)s, client_key_ref = %(client_key_ref)s,
    connect_timeout_ms = %(connect_timeout_ms)s, total_timeout_ms = %(total_timeout_ms)s,
    concurrency = %(concurrency)s, rate_per_second = %(rate_per_second)s, schedule_seconds = %(schedule_seconds)s,
    budget_seconds = %(budget_seconds)s, breaker_threshold = %(breaker_threshold)s,
    slow_start_seconds = %(slow_start_seconds)s, order_policy = %(order_policy)s::holdfast.order_policy,
    inquiry_path = %(inquiry_path)s, updated_at = now()
WHERE id = %(id)s
