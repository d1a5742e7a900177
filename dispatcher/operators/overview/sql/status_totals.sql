-- Backlog and what needs a person, in one snapshot; lanes, letters and rows are counted up to a limit. The oldest waiting entry
-- is the oldest among N lanes of each endpoint that are due first, and N that are due last.
-- Uses ix_batch_unrouted, ix_lane_due, ix_lane_leased, uq_dead_letter_open, ix_quarantine_open, ix_suppressed_overtaken; reads batch for its sums.
SELECT
    (SELECT count(*) FROM holdfast.batch WHERE routed_at IS NULL) AS unrouted_batches,
    lanes.due AS due_lanes, lanes.retrying AS retrying_lanes,
    (SELECT count(*) FROM holdfast.lane WHERE token IS NOT NULL) AS leased_lanes,
    (SELECT count(*) FROM (SELECT FROM holdfast.dead_letter WHERE resolution IS NULL LIMIT %(most)s) AS o) AS dead_letters,
    (SELECT coalesce(sum(quarantined_count), 0)::bigint FROM holdfast.batch) AS quarantined_rows,
    (SELECT count(*) FROM (SELECT FROM holdfast.quarantine WHERE resolution IS NULL LIMIT %(most)s) AS o)
        AS open_quarantined_rows,
    (SELECT count(*) FROM (SELECT FROM holdfast.suppressed WHERE cause = 'overtaken' LIMIT %(most)s) AS o) AS overtaken_rows,
    (SELECT count(*) FROM holdfast.divergence v JOIN holdfast.batch b USING (batch_no)
       JOIN holdfast.stream s ON s.name = b.stream AND s.query_id = b.query_id
      WHERE NOT EXISTS (SELECT FROM holdfast.batch later WHERE later.stream = b.stream
                           AND later.query_id = b.query_id AND later.batch_id > b.batch_id)
    ) AS diverged_replays,
    (SELECT coalesce(sum(entry_count), 0)::bigint FROM holdfast.batch) AS entries,
    extract(epoch FROM clock_timestamp() - lanes.head_created_at)::double precision AS oldest_waiting_seconds
FROM (
    SELECT coalesce(sum(due.lanes), 0)::bigint AS due, coalesce(sum(retrying.lanes), 0)::bigint AS retrying,
           min(least(first.head_created_at, last.head_created_at)) AS head_created_at
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        SELECT count(*) AS lanes
        FROM (SELECT FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at <= clock_timestamp() AND l.token IS NULL LIMIT %(most)s) l
    ) due
    CROSS JOIN LATERAL (
        SELECT count(*) AS lanes
        FROM (SELECT FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at > clock_timestamp() AND l.token IS NULL LIMIT %(most)s) l
    ) retrying
    CROSS JOIN LATERAL (
        SELECT min(l.head_created_at) AS head_created_at
        FROM (SELECT l.head_created_at FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
               ORDER BY l.priority, l.due_at LIMIT %(scanned)s) l
    ) first
    CROSS JOIN LATERAL (
        SELECT min(l.head_created_at) AS head_created_at
        FROM (SELECT l.head_created_at FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
               ORDER BY l.priority DESC, l.due_at DESC LIMIT %(scanned)s) l
    ) last
    WHERE p.state = 'active'
) lanes
