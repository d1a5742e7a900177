-- Advances the existing lanes of an endpoint (backfill_add.sql committed them) to the last stored entry. Lanes that are behind
-- are locked in the order of pk_lane, as everywhere, and only after all reads. Uses pk_lane; reads all partitions of entry.
WITH stored AS MATERIALIZED (
    SELECT e.subject_id, max(e.sequence) AS last_sequence, min(e.priority) AS priority
    FROM holdfast.endpoint p
    JOIN holdfast.entry e
      ON (p.types = '{}' OR e.type = ANY (p.types))
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    WHERE p.id = %(endpoint_id)s
    GROUP BY e.subject_id
),
behind AS MATERIALIZED (
    SELECT lane.endpoint_id, stored.*
    FROM stored
    JOIN holdfast.lane ON lane.endpoint_id = %(endpoint_id)s AND lane.subject_id = stored.subject_id
    WHERE lane.last_sequence < stored.last_sequence
    ORDER BY lane.subject_id
    FOR NO KEY UPDATE OF lane
)
UPDATE holdfast.lane
SET last_sequence = behind.last_sequence,
    priority = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN behind.priority
                    ELSE least(lane.priority, behind.priority) END,
    due_at = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN clock_timestamp()
                  ELSE lane.due_at END
FROM behind
WHERE lane.endpoint_id = behind.endpoint_id AND lane.subject_id = behind.subject_id
  AND lane.last_sequence < behind.last_sequence
