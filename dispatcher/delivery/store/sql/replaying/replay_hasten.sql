-- Brings retries forward: lanes with these entries at their head become due now, with unchanged attempts. Skips lanes that
-- are being sent or that have another head by now. Uses pk_lane, in whose order rows are locked, pk_entry, pk_replay_item.
WITH waiting AS MATERIALIZED (
    SELECT l.endpoint_id, l.subject_id, i.sequence
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
             AS i (endpoint_id, subject_id, sequence)
    JOIN holdfast.lane l ON l.endpoint_id = i.endpoint_id AND l.subject_id = i.subject_id
    JOIN holdfast.endpoint p ON p.id = i.endpoint_id
    WHERE l.token IS NULL AND l.due_at > now() AND l.attempt > 0 AND l.delivered_sequence < i.sequence
      AND NOT EXISTS (
          SELECT FROM holdfast.entry e
          WHERE e.subject_id = i.subject_id AND e.sequence > l.delivered_sequence AND e.sequence < i.sequence
            AND e.created_at >= l.head_created_at - interval '1 hour'
            AND (p.types = '{}' OR e.type = ANY (p.types))
      )
    ORDER BY l.endpoint_id, l.subject_id
    FOR NO KEY UPDATE OF l
),
hastened AS (
    UPDATE holdfast.lane
    SET due_at = now()
    FROM waiting
    WHERE lane.endpoint_id = waiting.endpoint_id AND lane.subject_id = waiting.subject_id
)
UPDATE holdfast.replay_item
SET settled_at = now(),
    detail = CASE WHEN waiting.sequence IS NULL THEN 'nothing done: it does not wait for a retry any more' END
FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
         AS i (endpoint_id, subject_id, sequence)
LEFT JOIN waiting
  ON waiting.endpoint_id = i.endpoint_id AND waiting.subject_id = i.subject_id AND waiting.sequence = i.sequence
WHERE replay_item.replay_id = %(id)s AND replay_item.endpoint_id = i.endpoint_id
  AND replay_item.subject_id = i.subject_id AND replay_item.sequence = i.sequence
RETURNING waiting.sequence IS NOT NULL AS done
