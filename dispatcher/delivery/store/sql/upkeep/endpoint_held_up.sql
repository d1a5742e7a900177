-- Endpoints with pending work that get no requests now: paused, disabled, with a breaker that is not closed, or held by
-- Retry-After. Uses ix_lane_due, pk_endpoint_pace.
SELECT p.name, p.state::text AS state, p.state_reason, r.breaker::text AS breaker, r.breaker_until, r.breaker_reason,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until, r.held_by
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
WHERE (p.state IN ('paused', 'disabled') OR p.state = 'active' AND (r.breaker IN ('open', 'half_open') OR r.held_until > now()))
  AND EXISTS (SELECT FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL)
ORDER BY p.name
