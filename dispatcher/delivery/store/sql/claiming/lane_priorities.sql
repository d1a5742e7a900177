-- The priorities of each endpoint's waiting lanes. Skips from one priority to the next without scanning its lanes.
-- Uses ix_lane_due.
WITH RECURSIVE step AS (
    SELECT w.endpoint_id, (
        SELECT l.priority FROM holdfast.lane l
        WHERE l.endpoint_id = w.endpoint_id AND l.due_at IS NOT NULL AND l.token IS NULL
        ORDER BY l.priority LIMIT 1
    ) AS priority
    FROM unnest(%(endpoint_ids)s::integer[]) AS w (endpoint_id)
    UNION ALL
    SELECT s.endpoint_id, (
        SELECT l.priority FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.priority > s.priority
          AND l.due_at IS NOT NULL AND l.token IS NULL
        ORDER BY l.priority LIMIT 1
    )
    FROM step s
    WHERE s.priority IS NOT NULL
)
SELECT endpoint_id, priority
FROM step
WHERE priority IS NOT NULL
