-- Ends leases where the token is still the lane's, and returns those lanes; a lane that is not returned had been taken over.
-- Uses pk_lane, in whose order the rows are locked, as routing does, so that the two cannot deadlock.
WITH held AS MATERIALIZED (
    SELECT r.*,
           -- The endpoint's running clock.
           (extract(epoch FROM CASE
               WHEN p.stalled_since IS NULL THEN now()
               ELSE least(now(), p.stalled_since) + greatest(now() - p.stalled_until, '0')
           END) * 1000000)::bigint - p.stalled_us AS running_us,
           p.failures > 0 OR p.breaker <> 'closed' OR e.rate_per_second IS NOT NULL AS paced
    FROM unnest(
        %(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(tokens)s::uuid[],
        %(delivered)s::bigint[], %(attempts)s::integer[], %(rescued)s::integer[],
        %(delays_us)s::bigint[], %(stopped)s::boolean[]
    ) AS r (endpoint_id, subject_id, token, delivered_sequence, attempt, rescued, delay_us, stopped)
    JOIN holdfast.lane l
      ON l.endpoint_id = r.endpoint_id AND l.subject_id = r.subject_id AND l.token = r.token
    JOIN holdfast.endpoint_pace p ON p.endpoint_id = r.endpoint_id
    JOIN holdfast.endpoint e ON e.id = r.endpoint_id
    ORDER BY r.endpoint_id, r.subject_id
    FOR NO KEY UPDATE OF l
)
UPDATE holdfast.lane
SET delivered_sequence = held.delivered_sequence,
    attempt = held.attempt,
    rescued = held.rescued,
    token = NULL,
    lease_until = NULL,
    tried_since_us = CASE
        WHEN held.attempt = 0 THEN NULL
        WHEN held.delivered_sequence = lane.delivered_sequence
            THEN coalesce(lane.tried_since_us, held.running_us)
        ELSE held.running_us
    END,
    due_at = CASE
        WHEN held.stopped THEN NULL
        WHEN held.delay_us IS NOT NULL THEN now() + held.delay_us * interval '1 microsecond'
        WHEN held.delivered_sequence < lane.last_sequence THEN now()
    END
FROM held
WHERE lane.endpoint_id = held.endpoint_id AND lane.subject_id = held.subject_id
RETURNING lane.endpoint_id, lane.subject_id, held.token, lane.due_at, now() AS settled_at,
          held.paced
