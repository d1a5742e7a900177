-- What may need a person, each counted up to a limit. Uses ix_batch_unrouted, uq_batch_batch_no, uq_dead_letter_open, pk_lane,
-- ix_quarantine_open, ix_suppressed_overtaken, ix_transition_ahead, uq_proposal_open, pk_batch; the other tables are small.
SELECT clock_timestamp() AS at,
       -- How far the clock is behind the newest batches and endpoints.
       (SELECT extract(epoch FROM greatest(max(b.written_at), (SELECT max(created_at) FROM holdfast.endpoint))
                                  - clock_timestamp())::float8
         FROM (SELECT written_at FROM holdfast.batch ORDER BY batch_no DESC LIMIT 1000) b) AS clock_behind_seconds,
       (SELECT count(*) FROM holdfast.batch WHERE routed_at IS NULL) AS unrouted_batches,
       (SELECT extract(epoch FROM clock_timestamp() - min(written_at))::float8
         FROM holdfast.batch WHERE routed_at IS NULL) AS unrouted_seconds,
       (SELECT count(*) FROM holdfast.dispatcher_instance
         WHERE heartbeat_at > %(alive_since)s AND NOT draining) AS dispatchers_alive,
       (SELECT count(*) FROM holdfast.dispatcher_instance
         WHERE heartbeat_at > %(alive_since)s AND draining) AS dispatchers_draining,
       (SELECT count(*) FROM (SELECT FROM holdfast.dead_letter WHERE resolution IS NULL LIMIT %(most)s) d) AS dead_letters,
       stopped.lanes AS stopped_lanes, stopped.scanned < %(dead_scanned)s AS stopped_complete,
       (SELECT count(*) FROM (SELECT FROM holdfast.quarantine WHERE resolution IS NULL LIMIT %(most)s) q) AS quarantined,
       (SELECT count(*) FROM (SELECT FROM holdfast.suppressed WHERE cause = 'overtaken' LIMIT %(most)s) x) AS overtaken,
       (SELECT count(DISTINCT t.subject_id)
          FROM (SELECT subject_id FROM holdfast.transition
                 WHERE ahead AND last_occurred_at > clock_timestamp() + interval '1 day' LIMIT %(most)s) t) AS silenced,
       diverged.replays AS diverged_replays, diverged.streams AS diverged_streams,
       (SELECT coalesce(array_agg(id ORDER BY created_at), '{}') FROM holdfast.replay
         WHERE state = 'planned' AND approved_by IS NULL AND counts @> '{"needs_approval": true}') AS replays_waiting,
       open.planned AS proposals_planned, open.approved AS proposals_approved
FROM (
    SELECT count(*) AS scanned, count(DISTINCT (l.endpoint_id, l.subject_id)) FILTER (WHERE l.endpoint_id IS NOT NULL) AS lanes
    FROM (
        SELECT d.endpoint_id, d.subject_id
        FROM holdfast.dead_letter d
        WHERE d.resolution IS NULL
        ORDER BY d.endpoint_id, d.subject_id
        LIMIT %(dead_scanned)s
    ) d
    LEFT JOIN LATERAL (
        SELECT l.endpoint_id, l.subject_id
        FROM holdfast.lane l
        WHERE l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
          AND l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < l.last_sequence
        LIMIT 1
    ) l ON true
) stopped
CROSS JOIN (
    SELECT count(*) AS replays, coalesce(array_agg(DISTINCT b.stream), '{}') AS streams
    FROM holdfast.divergence v
    JOIN holdfast.batch b USING (batch_no)
    JOIN holdfast.stream s ON s.name = b.stream AND s.query_id = b.query_id
    WHERE NOT EXISTS (SELECT FROM holdfast.batch later
                       WHERE later.stream = b.stream AND later.query_id = b.query_id AND later.batch_id > b.batch_id)
) diverged
CROSS JOIN (
    SELECT count(*) FILTER (WHERE approved_at IS NULL) AS planned, count(approved_at) AS approved
    FROM (SELECT approved_at FROM holdfast.proposal WHERE applied_at IS NULL AND cancelled_at IS NULL LIMIT %(most)s) p
) open
