-- Makes or advances the lanes of the given batches. A new lane begins at the subject's first entry for the endpoint, not at
-- the batch's: batches may be routed in any order. Uses ix_entry_batch_no, pk_entry, pk_lane, in whose order lanes are locked.
INSERT INTO holdfast.lane AS lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT m.endpoint_id, m.subject_id, coalesce(f.sequence - 1, known.delivered_sequence),
       m.last_sequence, m.priority, now(), coalesce(f.created_at, known.head_created_at)
FROM (
    SELECT p.id AS endpoint_id, e.subject_id, p.starts_at, max(e.sequence) AS last_sequence,
           min(e.priority) AS priority
    FROM holdfast.entry e
    JOIN holdfast.endpoint p
      -- Whatever its state: an endpoint that is paused or disabled misses nothing.
      ON (p.types = '{}' OR e.type = ANY (p.types))
     AND (p.starts_at IS NULL OR e.created_at >= p.starts_at)
    WHERE e.batch_no = ANY (%(batch_nos)s::bigint[])
      -- An entry has its batch's moment; said as a range, it prunes partitions.
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
    GROUP BY p.id, e.subject_id
) m
LEFT JOIN holdfast.lane known USING (endpoint_id, subject_id)
LEFT JOIN LATERAL (
    SELECT e.sequence, e.created_at
    FROM holdfast.entry e
    WHERE known.endpoint_id IS NULL
      AND e.subject_id = m.subject_id
      AND e.created_at >= coalesce(m.starts_at, '-infinity')
    ORDER BY e.sequence
    LIMIT 1
) f ON true
ORDER BY m.endpoint_id, m.subject_id
ON CONFLICT (endpoint_id, subject_id) DO UPDATE
SET last_sequence = excluded.last_sequence,
    -- A lane is as urgent as the most urgent entry in it: what stands before that entry must go first.
    priority = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN excluded.priority
                    ELSE least(lane.priority, excluded.priority) END,
    -- Idle lanes become due; a lane that a dead letter has stopped stays so.
    due_at = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN excluded.due_at
                  ELSE lane.due_at END
WHERE lane.last_sequence < excluded.last_sequence
