-- Whether a drain must continue: an unrouted batch, a lease to settle or rescue, a due lane or replay item of an endpoint that
-- can be sent to, or a replay to finish. Compares with the statement's time: a batch that was routed after this transaction began
-- made its lanes due after that, too. Uses ix_batch_unrouted, ix_lane_leased, ix_lane_due, pk_endpoint_pace, ix_replay_applying,
-- ix_replay_item_due, ix_replay_item_leased, pk_replay_item.
WITH open AS (
    SELECT p.id
    FROM holdfast.endpoint p
    JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
    WHERE p.id = ANY (%(endpoint_ids)s::integer[]) AND p.state = 'active'
      AND (e.held_until IS NULL OR e.held_until <= statement_timestamp())
      AND (e.breaker NOT IN ('open', 'half_open') OR e.breaker_until <= statement_timestamp())
)
SELECT EXISTS (SELECT FROM holdfast.batch WHERE routed_at IS NULL)
    OR EXISTS (SELECT FROM holdfast.lane WHERE token IS NOT NULL)
    OR EXISTS (
        SELECT
        FROM open
        JOIN holdfast.lane l ON l.endpoint_id = open.id
        WHERE l.token IS NULL AND l.due_at <= statement_timestamp()
    )
    OR EXISTS (SELECT FROM holdfast.replay_item WHERE token IS NOT NULL)
    OR EXISTS (
        SELECT
        FROM holdfast.replay y
        WHERE y.state = 'applying' AND y.verb = 'redeliver' AND (
            EXISTS (
                SELECT
                FROM open
                JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.endpoint_id = open.id
                WHERE i.settled_at IS NULL AND i.token IS NULL AND (i.due_at IS NULL OR i.due_at <= statement_timestamp())
                  AND NOT EXISTS (
                      SELECT FROM holdfast.replay_item o
                      WHERE o.replay_id = i.replay_id AND o.endpoint_id = i.endpoint_id
                        AND o.subject_id = i.subject_id AND o.sequence < i.sequence AND o.settled_at IS NULL
                  )
            )
            OR NOT EXISTS (
                SELECT FROM holdfast.replay_item i WHERE i.replay_id = y.id AND i.settled_at IS NULL AND i.token IS NULL
            )
        )
    ) AS pending
