-- Releases lanes that these dead letters stop: resolves the letters and makes the lanes due with a full schedule. Attempt
-- numbers continue. Skips lanes that such a letter no longer stops. Uses pk_lane, in whose order rows are locked,
-- uq_dead_letter_open, pk_replay_item.
WITH held AS MATERIALIZED (
    SELECT l.endpoint_id, l.subject_id, d.id, d.sequence, d.attempts
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
             AS i (endpoint_id, subject_id, sequence)
    JOIN holdfast.lane l ON l.endpoint_id = i.endpoint_id AND l.subject_id = i.subject_id
    JOIN holdfast.dead_letter d
      ON d.endpoint_id = i.endpoint_id AND d.subject_id = i.subject_id AND d.sequence = i.sequence
     AND d.resolution IS NULL
    WHERE l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < i.sequence
    ORDER BY l.endpoint_id, l.subject_id
    FOR NO KEY UPDATE OF l, d
),
resolved AS (
    UPDATE holdfast.dead_letter
    SET resolution = 'redelivered', resolved_at = now(), resolved_by = %(actor)s,
        window_waived = dead_letter.window_waived OR %(outside_window)s
    FROM held
    WHERE dead_letter.id = held.id
),
released AS (
    UPDATE holdfast.lane
    SET due_at = now(), attempt = greatest(lane.attempt, held.attempts),
        rescued = greatest(lane.attempt, held.attempts), tried_since_us = NULL
    FROM held
    WHERE lane.endpoint_id = held.endpoint_id AND lane.subject_id = held.subject_id
)
UPDATE holdfast.replay_item
SET settled_at = now(),
    detail = CASE WHEN held.id IS NULL THEN 'nothing done: it does not hold its lane any more' END
FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
         AS i (endpoint_id, subject_id, sequence)
LEFT JOIN held
  ON held.endpoint_id = i.endpoint_id AND held.subject_id = i.subject_id AND held.sequence = i.sequence
WHERE replay_item.replay_id = %(id)s AND replay_item.endpoint_id = i.endpoint_id
  AND replay_item.subject_id = i.subject_id AND replay_item.sequence = i.sequence
RETURNING held.id IS NOT NULL AS done
