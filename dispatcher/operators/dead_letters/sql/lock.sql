-- Locks the lanes of some dead letters, in the order in which routing and settlement lock them.
-- Uses pk_dead_letter, pk_lane.
SELECT l.endpoint_id, l.subject_id
FROM holdfast.lane l
WHERE (l.endpoint_id, l.subject_id) IN (
    SELECT d.endpoint_id, d.subject_id FROM holdfast.dead_letter d WHERE d.id = ANY (%(ids)s::bigint[])
)
ORDER BY l.endpoint_id, l.subject_id
FOR NO KEY UPDATE OF l
