-- Moves a lane, which the caller has locked, past sequences that are not stored. It is due now if more is to be delivered.
-- Uses pk_lane.
UPDATE holdfast.lane
SET delivered_sequence = %(passed)s::bigint,
    due_at = CASE WHEN %(passed)s::bigint < last_sequence THEN now() END,
    attempt = 0,
    rescued = 0,
    tried_since_us = NULL
WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s
