-- Locks every lane of an endpoint in the order of pk_lane, as lane_hold.sql does, so that the next statement sees each as it
-- stays. Uses pk_lane.
SELECT count(*) AS lanes
FROM (
    SELECT FROM holdfast.lane
    WHERE endpoint_id = %(endpoint_id)s
    ORDER BY subject_id
    FOR NO KEY UPDATE
) held
