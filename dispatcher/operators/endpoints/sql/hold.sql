-- Locks every lane of an endpoint in the order of pk_lane, so that none changes after the next statement reads it.
-- Uses pk_lane.
SELECT count(*) AS lanes
FROM (
    SELECT FROM holdfast.lane
    WHERE endpoint_id = %(endpoint_id)s
    ORDER BY subject_id
    FOR NO KEY UPDATE
) held
