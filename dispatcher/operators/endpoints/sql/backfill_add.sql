-- Creates the missing lanes of an endpoint for the stored entries that it takes; runs after the endpoint is committed, so that
-- routing covers every later batch. Uses pk_lane_key; reads all partitions of entry.
INSERT INTO holdfast.lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT m.*
FROM (
    SELECT p.id AS endpoint_id, e.subject_id, min(e.sequence) - 1, max(e.sequence), min(e.priority), clock_timestamp(),
           min(e.created_at)
    FROM holdfast.endpoint p
    JOIN holdfast.entry e
      ON (p.types = '{}' OR e.type = ANY (p.types))
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    WHERE p.id = %(endpoint_id)s
    GROUP BY p.id, e.subject_id
) m
WHERE NOT EXISTS (
    SELECT FROM holdfast.lane_key k WHERE k.endpoint_id = m.endpoint_id AND k.subject_id = m.subject_id
)
ORDER BY m.subject_id
