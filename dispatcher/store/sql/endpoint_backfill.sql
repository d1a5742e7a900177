-- Makes or advances the lanes of an endpoint for entries that were routed before it existed; runs after it is
-- committed, so that routing takes care of every batch from there on. Uses pk_lane; reads all partitions of entry.
INSERT INTO holdfast.lane AS lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT p.id, e.subject_id, min(e.sequence) - 1, max(e.sequence), min(e.priority),
       clock_timestamp(), min(e.created_at)
FROM holdfast.endpoint p
JOIN holdfast.entry e ON p.types = '{}' OR e.type = ANY (p.types)
WHERE p.id = %(endpoint_id)s
GROUP BY p.id, e.subject_id
ORDER BY e.subject_id
ON CONFLICT (endpoint_id, subject_id) DO UPDATE
SET last_sequence = excluded.last_sequence,
    priority = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN excluded.priority
                    ELSE least(lane.priority, excluded.priority) END,
    due_at = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN excluded.due_at
                  ELSE lane.due_at END
WHERE lane.last_sequence < excluded.last_sequence
