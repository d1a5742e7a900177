-- Locks the lanes of the given batches in the order of pk_lane, as lane_hold.sql does for a settlement, so that the next
-- statement sees their last versions. Uses ix_entry_batch_no, pk_lane.
SELECT count(*) AS lanes
FROM (
    SELECT p.id AS endpoint_id, e.subject_id
    FROM holdfast.entry e
    JOIN holdfast.endpoint p
      ON (p.types = '{}' OR e.type = ANY (p.types))
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    WHERE e.batch_no = ANY (%(batch_nos)s::bigint[])
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
    GROUP BY p.id, e.subject_id
    ORDER BY p.id, e.subject_id
) given
CROSS JOIN LATERAL (
    -- Backwards: the newest version comes first.
    SELECT
    FROM holdfast.lane
    WHERE lane.endpoint_id = given.endpoint_id
      AND lane.subject_id BETWEEN given.subject_id AND given.subject_id
    ORDER BY lane.subject_id DESC, lane.turn DESC
    LIMIT 1
    FOR NO KEY UPDATE
) lane
