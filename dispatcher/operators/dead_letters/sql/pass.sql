-- Lets the lanes that the named dead letters held go on behind them: due now, where more is to deliver. A lane that
-- goes on already is left alone. Uses pk_dead_letter, pk_lane.
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
