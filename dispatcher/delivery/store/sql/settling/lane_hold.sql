-- Locks lanes, so that the next statement, which has its own snapshot, sees their last versions. Uses pk_lane, in whose order
-- the rows are locked, as routing does, so that the two cannot deadlock.
SELECT count(*) AS lanes
FROM (
    SELECT *
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[]) AS g (endpoint_id, subject_id)
    ORDER BY endpoint_id, subject_id
) given
CROSS JOIN LATERAL (
    -- Backwards: if an old snapshot keeps every version of a lane, the newest comes first. Written as a range, because rows of one
    -- subject would need no order.
    SELECT
    FROM holdfast.lane
    WHERE lane.endpoint_id = given.endpoint_id
      AND lane.subject_id BETWEEN given.subject_id AND given.subject_id
    ORDER BY lane.subject_id DESC, lane.turn DESC
    LIMIT 1
    FOR NO KEY UPDATE
) lane
