-- Makes or advances the lanes of the given batches, and marks these as routed. A new lane begins at the subject's first entry
-- for the endpoint, not at the batch's: batches may be routed in any order. Uses ix_entry_batch_no, pk_entry, uq_batch_batch_no,
-- and pk_lane, in whose order lanes are locked.
WITH marked AS (
    UPDATE holdfast.batch
    SET routed_at = now()
    WHERE batch_no = ANY (%(batch_nos)s::bigint[])
)
INSERT INTO holdfast.lane AS lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT m.endpoint_id, m.subject_id,
       -- Of a lane that is there, nothing from here on counts; it may be past this batch already.
       coalesce(f.sequence, m.first_sequence) - 1,
       m.last_sequence, m.priority, now(),
       coalesce(known.head_created_at, f.created_at, m.first_created_at)
FROM (
    SELECT p.id AS endpoint_id, e.subject_id, p.starts_at, max(e.sequence) AS last_sequence,
           min(e.sequence) AS first_sequence, min(e.created_at) AS first_created_at,
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
LEFT JOIN LATERAL (
    -- Lane by lane, and as lane_hold.sql does: a plan that was made while the table was small would pass all of them for each.
    SELECT lane.endpoint_id, lane.head_created_at
    FROM holdfast.lane
    WHERE lane.endpoint_id = m.endpoint_id AND lane.subject_id BETWEEN m.subject_id AND m.subject_id
    ORDER BY lane.subject_id DESC
    LIMIT 1
) known ON true
LEFT JOIN LATERAL (
    SELECT e.sequence, e.created_at
    FROM holdfast.entry e
    -- Nothing stands before a subject's first. A subject's created_at never falls, which prunes partitions.
    WHERE known.endpoint_id IS NULL AND m.first_sequence > 1
      AND e.subject_id = m.subject_id
      AND e.created_at >= coalesce(m.starts_at, '-infinity')
      AND e.created_at <= m.first_created_at
    ORDER BY e.sequence
    LIMIT 1
) f ON true
ORDER BY m.endpoint_id, m.subject_id
ON CONFLICT (endpoint_id, subject_id) DO UPDATE
SET last_sequence = greatest(lane.last_sequence, excluded.last_sequence),
    -- A lane is as urgent as the most urgent entry in it: what stands before that entry must go first.
    priority = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN excluded.priority
                    ELSE least(lane.priority, excluded.priority) END,
    -- Idle lanes become due; a lane that a dead letter has stopped stays so.
    due_at = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN excluded.due_at
                  ELSE lane.due_at END
-- A batch that is routed after a later one brings no sequence, but perhaps an entry that is more urgent.
WHERE lane.last_sequence < excluded.last_sequence
   OR lane.delivered_sequence < excluded.last_sequence AND excluded.priority < lane.priority
