-- Whether a drain has something left to do: a batch to route, a lease to settle or rescue, a lane that is due.
-- Uses ix_batch_unrouted, ix_lane_leased, ix_lane_due.
SELECT EXISTS (SELECT FROM holdfast.batch WHERE routed_at IS NULL)
    OR EXISTS (SELECT FROM holdfast.lane WHERE token IS NOT NULL)
    OR EXISTS (
        SELECT
        FROM holdfast.lane l
        JOIN holdfast.endpoint p ON p.id = l.endpoint_id
        WHERE l.endpoint_id = ANY (%(endpoint_ids)s::integer[]) AND p.state = 'active'
          AND l.token IS NULL AND l.due_at <= now()
    ) AS pending
