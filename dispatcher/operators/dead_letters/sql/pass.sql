-- Moves the lanes that some dead letters hold past them: due now, if more is to deliver. Lanes that are not held stay as they
-- are. Uses pk_dead_letter, pk_lane.
UPDATE holdfast.lane
SET delivered_sequence = d.sequence,
    due_at = CASE WHEN d.sequence < lane.last_sequence THEN now() END,
    attempt = 0,
    rescued = 0,
    tried_since_us = NULL
FROM holdfast.dead_letter d
WHERE d.id = ANY (%(ids)s::bigint[])
  AND lane.endpoint_id = d.endpoint_id AND lane.subject_id = d.subject_id
  AND lane.token IS NULL AND lane.due_at IS NULL AND lane.delivered_sequence < d.sequence
RETURNING d.id
