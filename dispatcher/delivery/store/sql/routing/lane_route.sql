-- Creates or advances the lanes of the given batches and marks these as routed, unless one of the lanes was changed or created
-- after the snapshot. That lane stays as it is and no batch is marked; the changes of the other lanes stand. Existing lanes come
-- first, then new ones, both in the order of pk_lane, so that two routers cannot deadlock. New lanes of subjects with earlier
-- entries are created only if `past` is before the batches, which scans all days since `past`. Uses ix_entry_batch_no, pk_lane,
-- pk_entry, uq_batch_batch_no, ix_batch_unrouted.
WITH coming AS MATERIALIZED (
    SELECT m.*, l.version
    FROM (
        SELECT p.id AS endpoint_id, e.subject_id, p.starts_after, p.starts_late, max(e.sequence) AS last_sequence,
               min(e.sequence) AS first_sequence, min(e.created_at) AS first_created_at,
               min(e.priority) AS priority
        FROM holdfast.entry e
        JOIN holdfast.endpoint p
          -- In any state: a paused or disabled endpoint misses no entry.
          ON (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
         AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
        WHERE e.batch_no = ANY (%(batch_nos)s::bigint[])
          -- An entry has its batch's time; as a range, it prunes partitions.
          AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
        GROUP BY p.id, e.subject_id
    ) m
    LEFT JOIN LATERAL (
        -- One lane at a time, as in `lane_hold`: a plan made while the table was small would scan all of them for each.
        SELECT lane.ctid AS version, lane.delivered_sequence, lane.last_sequence, lane.priority
        FROM holdfast.lane
        WHERE lane.endpoint_id = m.endpoint_id AND lane.subject_id BETWEEN m.subject_id AND m.subject_id
        ORDER BY lane.subject_id DESC, lane.turn DESC
        LIMIT 1
    ) l ON true
    -- A batch that is routed after a later one adds no sequence, but perhaps a more urgent entry.
    WHERE l.version IS NULL OR l.last_sequence < m.last_sequence
       OR l.delivered_sequence < m.last_sequence AND m.priority < l.priority
    ORDER BY m.endpoint_id, m.subject_id
),
advanced AS (
    UPDATE holdfast.lane
    SET last_sequence = greatest(lane.last_sequence, coming.last_sequence),
        -- A lane has the priority of its most urgent entry: the entries before it must be sent first.
        priority = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN coming.priority
                        ELSE least(lane.priority, coming.priority) END,
        -- Idle lanes become due; stopped lanes stay stopped. A waiting lane moves behind all others of its new, more urgent
        -- priority: claims scan that priority from their cursor.
        due_at = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN now()
                      WHEN coming.priority < lane.priority AND lane.token IS NULL AND lane.due_at <= now() THEN now()
                      ELSE lane.due_at END,
        -- Further entries of an idle lane are in unrouted batches.
        head_created_at = CASE WHEN lane.delivered_sequence < lane.last_sequence THEN lane.head_created_at
                               ELSE greatest(lane.head_created_at, least(coming.first_created_at, (
                                   SELECT min(b.written_at) FROM holdfast.batch b WHERE b.routed_at IS NULL
                               ))) END,
        turn = lane.turn + 1
    FROM coming
    WHERE lane.ctid = coming.version
      -- Checked again: versions of Postgres differ in whether they re-evaluate a concurrently changed row.
      AND (lane.last_sequence < coming.last_sequence
           OR lane.delivered_sequence < coming.last_sequence AND coming.priority < lane.priority)
    RETURNING lane.endpoint_id, lane.priority
),
added AS (
    INSERT INTO holdfast.lane (
        endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
    )
    -- Starts at the subject's first entry for the endpoint, not the batch's: batches may be routed in any order.
    SELECT m.endpoint_id, m.subject_id, coalesce(f.sequence, m.first_sequence) - 1, m.last_sequence, m.priority, now(),
           coalesce(f.created_at, m.first_created_at)
    FROM coming m
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.created_at
        FROM holdfast.entry e
        -- No entry precedes a subject's first.
        WHERE m.first_sequence > 1
          AND e.subject_id = m.subject_id
          AND (m.starts_after IS NULL OR e.batch_no > m.starts_after OR e.batch_no <@ m.starts_late)
          -- Bounds from a row must not prune partitions here, as in lane_claim.sql.
          AND e.created_at BETWEEN %(past)s AND %(last_written_at)s
        ORDER BY e.sequence
        LIMIT 1
    ) f ON true
    WHERE m.version IS NULL AND (m.first_sequence = 1 OR %(past)s < %(last_written_at)s)
    ORDER BY m.endpoint_id, m.subject_id
    RETURNING endpoint_id, priority
),
marked AS (
    -- Counting runs them in this order. Postgres does not guarantee it; in another order two routers could deadlock, no more.
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
