-- The endpoints to which nothing is sent now, and why; and a row without a name while no dispatcher is alive, as in
-- `holdfast status`. Uses uq_endpoint_name, pk_endpoint_pace; dispatcher_instance has a row per process.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, p.state_reason, r.breaker::text AS breaker,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
WHERE p.name = ANY (%(names)s) AND (p.state <> 'active' OR r.breaker = 'open' OR r.held_until > now())
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (
    SELECT FROM holdfast.dispatcher_instance WHERE heartbeat_at > %(alive_since)s
)
ORDER BY endpoint NULLS LAST
