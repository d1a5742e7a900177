-- The number of due lanes of endpoints that cannot be sent to.
-- Uses ix_lane_due.
SELECT endpoint_id, count(*) AS lanes
FROM holdfast.lane
WHERE endpoint_id = ANY (%(endpoint_ids)s::integer[]) AND token IS NULL AND due_at <= now()
GROUP BY endpoint_id
