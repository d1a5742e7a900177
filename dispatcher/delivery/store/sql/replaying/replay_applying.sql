-- Locks the oldest replays that have a due item or no unsettled item left. Skips those that another dispatcher has locked, and
-- those that must wait, which would block later ones. Replays whose rate allows an item come first.
-- Uses ix_replay_applying, ix_replay_item_due, pk_replay_item, pk_endpoint_pace.
WITH open AS (
    SELECT p.id
    FROM holdfast.endpoint p
    JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
    WHERE p.id = ANY (%(endpoint_ids)s::integer[]) AND p.state = 'active'
      AND (e.held_until IS NULL OR e.held_until <= now())
      AND (e.breaker NOT IN ('open', 'half_open') OR e.breaker_until <= now())
)
SELECT y.id, y.rate_per_second, y.paid_until,
       -- If the plan repeated nothing outside a key-retention window, no item may do so later.
       y.outside_window AND coalesce((y.counts ->> 'repeats')::bigint, 1) > 0 AS outside_window, y.actor, now() AS at
FROM holdfast.replay y
WHERE y.state = 'applying' AND y.verb = 'redeliver' AND (
    EXISTS (
        SELECT
        FROM open
        JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.endpoint_id = open.id
        WHERE i.settled_at IS NULL AND i.token IS NULL AND (i.due_at IS NULL OR i.due_at <= now())
          AND NOT EXISTS (
              SELECT FROM holdfast.replay_item o
              WHERE o.replay_id = i.replay_id AND o.endpoint_id = i.endpoint_id
                AND o.subject_id = i.subject_id AND o.sequence < i.sequence AND o.settled_at IS NULL
          )
    )
    OR NOT EXISTS (
        SELECT FROM holdfast.replay_item i WHERE i.replay_id = y.id AND i.settled_at IS NULL
    )
)
ORDER BY y.rate_per_second IS NOT NULL AND y.paid_until > now(), y.created_at
LIMIT %(replays)s
FOR NO KEY UPDATE OF y SKIP LOCKED
