-- Adds an endpoint; without from_beginning it starts with the decisions made from now on.
-- Unique by uq_endpoint_name.
INSERT INTO holdfast.endpoint (
    name, url, types, secret_refs, allow_cidrs, connect_timeout_ms, total_timeout_ms, concurrency,
    schedule_seconds, order_policy, starts_at
)
VALUES (
    %(name)s, %(url)s, %(types)s, %(secret_refs)s, %(allow_cidrs)s::cidr[], %(connect_timeout_ms)s,
    %(total_timeout_ms)s, %(concurrency)s, %(schedule_seconds)s,
    %(order_policy)s::holdfast.order_policy,
    CASE WHEN %(from_beginning)s THEN NULL ELSE clock_timestamp() END
)
RETURNING id, name, url, state, order_policy, starts_at
