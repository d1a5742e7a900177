-- Whether a drain has something left to do: a batch to route, a lease to settle or rescue, a lane that is due at an endpoint
-- that may be sent to now. Uses ix_batch_unrouted, ix_lane_leased, ix_lane_due, pk_endpoint_pace.
SELECT EXISTS (SELECT FROM holdfast.batch WHERE routed_at IS NULL)
    OR EXISTS (SELECT FROM holdfast.lane WHERE token IS NOT NULL)
    OR EXISTS (
        SELECT
        FROM holdfast.lane l
        JOIN holdfast.endpoint p ON p.id = l.endpoint_id
        JOIN holdfast.endpoint_pace e ON e.endpoint_id = l.endpoint_id
        WHERE l.endpoint_id = ANY (%(endpoint_ids)s::integer[]) AND p.state = 'active'
          AND (e.held_until IS NULL OR e.held_until <= now())
          AND (e.breaker NOT IN ('open', 'half_open') OR e.breaker_until <= now())
          AND l.token IS NULL AND l.due_at <= now()
    ) AS pending
