-- The progress of a replay by endpoint, and the endpoint's obstacles.
-- Uses pk_replay_item of this replay, pk_endpoint, pk_endpoint_pace.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, p.rate_per_second, r.breaker::text AS breaker,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until,
       count(*) AS items,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL) AS settled,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind = 'release' AND i.detail IS NULL) AS released,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind = 'hasten' AND i.detail IS NULL) AS hastened,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind = 'resend' AND i.outcome IS NOT NULL) AS sent,
       count(*) FILTER (WHERE i.outcome = 'delivered') AS delivered,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.outcome <> 'delivered') AS failed,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind <> 'resend' AND i.detail IS NOT NULL) AS needless,
       count(*) FILTER (WHERE i.token IS NOT NULL) AS in_flight,
       count(*) FILTER (WHERE i.settled_at IS NULL AND i.token IS NULL) AS waiting,
       count(*) FILTER (WHERE i.settled_at IS NULL AND i.token IS NULL AND i.due_at > now()) AS retrying
FROM holdfast.replay_item i
JOIN holdfast.endpoint p ON p.id = i.endpoint_id
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
WHERE i.replay_id = %(id)s
GROUP BY p.id, r.endpoint_id
ORDER BY p.name
