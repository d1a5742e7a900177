-- Makes or advances the lanes of the given batches, and marks these as routed: unless somebody changed or made one of the lanes since
-- our snapshot. That one is left as it is, and all batches to another turn; what was done for the others stands. Lanes that are
-- there first, then new ones, both in the order of pk_lane, so that two routers cannot deadlock. New lanes of subjects that had
-- entries before are made where `past` lies before the batches: then all days from there on are looked at. Uses ix_entry_batch_no,
-- pk_lane, pk_entry, uq_batch_batch_no, ix_batch_unrouted.
WITH coming AS MATERIALIZED (
    SELECT m.*, l.version
    FROM (
        SELECT p.id AS endpoint_id, e.subject_id, p.starts_after, p.starts_late, max(e.sequence) AS last_sequence,
               min(e.sequence) AS first_sequence, min(e.created_at) AS first_created_at,
               min(e.priority) AS priority
        FROM holdfast.entry e
        JOIN holdfast.endpoint p
          -- Whatever its state: an endpoint that is paused or disabled misses nothing.
          ON (p.types = '{}' OR e.type = ANY (p.types))
         AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
        WHERE e.batch_no = ANY (%(batch_nos)s::bigint[])
          -- An entry has its batch's moment; said as a range, it prunes partitions.
          AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
        GROUP BY p.id, e.subject_id
    ) m
    LEFT JOIN LATERAL (
        -- Lane by lane, and as lane_hold.sql does: a plan that was made while the table was small would pass all of them for each.
        SELECT lane.ctid AS version, lane.delivered_sequence, lane.last_sequence, lane.priority
        FROM holdfast.lane
        WHERE lane.endpoint_id = m.endpoint_id AND lane.subject_id BETWEEN m.subject_id AND m.subject_id
        ORDER BY lane.subject_id DESC, lane.turn DESC
        LIMIT 1
    ) l ON true
    -- A batch that is routed after a later one brings no sequence, but perhaps an entry that is more urgent.
    WHERE l.version IS NULL OR l.last_sequence < m.last_sequence
       OR l.delivered_sequence < m.last_sequence AND m.priority < l.priority
    ORDER BY m.endpoint_id, m.subject_id
),
advanced AS (
    UPDATE holdfast.lane
    SET last_sequence = greatest(lane.last_sequence, coming.last_sequence),
        -- A lane is as urgent as the most urgent entry in it: what stands before that entry must go first.
        priority = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN coming.priority
                        ELSE least(lane.priority, coming.priority) END,
        -- Idle lanes become due; a lane that a dead letter has stopped stays so. One that waits for its turn stands last among
        -- the more urgent ones: claims look there from where they have come to.
        due_at = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN now()
                      WHEN coming.priority < lane.priority AND lane.token IS NULL AND lane.due_at <= now() THEN now()
                      ELSE lane.due_at END,
        -- What is to come for an idle lane is in batches that nobody has routed yet.
        head_created_at = CASE WHEN lane.delivered_sequence < lane.last_sequence THEN lane.head_created_at
                               ELSE greatest(lane.head_created_at, least(coming.first_created_at, (
                                   SELECT min(b.written_at) FROM holdfast.batch b WHERE b.routed_at IS NULL
                               ))) END,
        turn = lane.turn + 1
    FROM coming
    WHERE lane.ctid = coming.version
      -- Asked again: some versions of Postgres go on with what somebody's change left, others do not.
      AND (lane.last_sequence < coming.last_sequence
           OR lane.delivered_sequence < coming.last_sequence AND coming.priority < lane.priority)
    RETURNING lane.endpoint_id, lane.priority
),
added AS (
    INSERT INTO holdfast.lane (
        endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
    )
    -- At the subject's first entry for the endpoint, not at the batch's: batches may be routed in any order.
    SELECT m.endpoint_id, m.subject_id, coalesce(f.sequence, m.first_sequence) - 1, m.last_sequence, m.priority, now(),
           coalesce(f.created_at, m.first_created_at)
    FROM coming m
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.created_at
        FROM holdfast.entry e
        -- Nothing stands before a subject's first.
        WHERE m.first_sequence > 1
          AND e.subject_id = m.subject_id
          AND (m.starts_after IS NULL OR e.batch_no > m.starts_after OR e.batch_no <@ m.starts_late)
          -- No bound of a row may prune partitions here, as in lane_claim.sql.
          AND e.created_at BETWEEN %(past)s AND %(last_written_at)s
        ORDER BY e.sequence
        LIMIT 1
    ) f ON true
    WHERE m.version IS NULL AND (m.first_sequence = 1 OR %(past)s < %(last_written_at)s)
    ORDER BY m.endpoint_id, m.subject_id
    RETURNING endpoint_id, priority
),
marked AS (
    -- Counting them carries them out, in this order. Postgres does not promise it; in another, two routers could deadlock, no more.
    UPDATE holdfast.batch
    SET routed_at = now()
    WHERE batch_no = ANY (%(batch_nos)s::bigint[])
      AND (SELECT count(*) FROM advanced) + (SELECT count(*) FROM added) = (SELECT count(*) FROM coming)
    RETURNING 1
)
SELECT (SELECT count(*) FROM marked) AS batches,
       (SELECT count(*) FROM advanced) + (SELECT count(*) FROM added) AS lanes,
       ARRAY(SELECT ARRAY[endpoint_id, priority] FROM (TABLE advanced UNION ALL TABLE added) lane
             GROUP BY endpoint_id, priority) AS priorities
