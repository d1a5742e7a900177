-- Ends leases of replayed entries whose token is still the item's, and returns those items; the others were rescued. A
-- delivered entry resolves its dead letter. Uses ix_replay_item_open, pk_replay, uq_dead_letter_open, pk_endpoint_pace,
-- pk_endpoint.
WITH held AS MATERIALIZED (
    SELECT r.*, i.replay_id, y.actor, y.state,
           p.failures > 0 OR p.breaker <> 'closed' OR e.rate_per_second IS NOT NULL AS paced
    FROM unnest(
        %(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[], %(tokens)s::uuid[],
        %(outcomes)s::holdfast.outcome[], %(details)s::text[], %(delays_us)s::bigint[],
        %(charged)s::integer[], %(settled)s::boolean[]
    ) AS r (endpoint_id, subject_id, sequence, token, outcome, detail, delay_us, charged, settled)
    JOIN holdfast.replay_item i
      ON i.endpoint_id = r.endpoint_id AND i.subject_id = r.subject_id AND i.sequence = r.sequence
     AND i.token = r.token AND i.settled_at IS NULL
    JOIN holdfast.replay y ON y.id = i.replay_id
    JOIN holdfast.endpoint_pace p ON p.endpoint_id = r.endpoint_id
    JOIN holdfast.endpoint e ON e.id = r.endpoint_id
    ORDER BY r.endpoint_id, r.subject_id, r.sequence
    FOR NO KEY UPDATE OF i
),
resolved AS (
    UPDATE holdfast.dead_letter d
    SET resolution = 'redelivered', resolved_at = now(), resolved_by = held.actor
    FROM held
    WHERE held.outcome = 'delivered' AND d.endpoint_id = held.endpoint_id AND d.subject_id = held.subject_id
      AND d.sequence = held.sequence AND d.resolution IS NULL
)
UPDATE holdfast.replay_item
SET token = NULL,
    lease_until = NULL,
    attempt = replay_item.attempt + held.charged,
    outcome = coalesce(held.outcome, replay_item.outcome),
    detail = held.detail,
    -- An item of a cancelled replay is not retried.
    settled_at = CASE WHEN held.settled OR held.state <> 'applying' AND held.outcome IS NOT NULL THEN now() END,
    due_at = now() + coalesce(held.delay_us, 0) * interval '1 microsecond'
FROM held
WHERE replay_item.replay_id = held.replay_id AND replay_item.endpoint_id = held.endpoint_id
  AND replay_item.subject_id = held.subject_id AND replay_item.sequence = held.sequence
RETURNING replay_item.endpoint_id, replay_item.subject_id, held.token, replay_item.due_at,
          now() AS settled_at, held.paced
