-- Every endpoint with its backlog: waiting lanes, leased lanes, open dead letters, each counted up to a limit.
-- Uses ix_lane_due, ix_lane_leased and uq_dead_letter_open.
WITH leased AS (
    SELECT l.endpoint_id, count(*) AS lanes FROM holdfast.lane l WHERE l.token IS NOT NULL GROUP BY l.endpoint_id
)
SELECT p.name, p.url, p.state, p.state_reason, p.order_policy, p.types, p.secret_refs,
       p.starts_at,
       (SELECT count(*)
          FROM (SELECT FROM holdfast.lane l
                 WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL LIMIT %(most)s) due
       ) AS waiting_lanes,
       coalesce(leased.lanes, 0) AS leased_lanes,
       (SELECT count(*)
          FROM (SELECT FROM holdfast.dead_letter d
                 WHERE d.endpoint_id = p.id AND d.resolution IS NULL LIMIT %(most)s) open
       ) AS dead_letters
FROM holdfast.endpoint p
LEFT JOIN leased ON leased.endpoint_id = p.id
ORDER BY p.name
