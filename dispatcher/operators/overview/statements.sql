-- name: ahead
-- Events of the last day that were late because the watermark of the job was ahead of the clock, among the newest N late events.
-- Uses pk_late_event backwards.
SELECT count(*) AS late_ahead, coalesce(array_agg(DISTINCT stream), '{}') AS ahead_streams,
       extract(epoch FROM max(watermark - written_at))::float8 AS ahead_seconds
FROM (SELECT stream, reason, watermark, written_at FROM holdfast.late_event ORDER BY id DESC LIMIT %(most)s) l
WHERE reason = 'late' AND watermark > written_at AND written_at > clock_timestamp() - interval '1 day'


-- name: attempts
-- The newest N attempts since a moment: counts by minute and outcome, percentiles of their duration.
-- Walks ix_attempt_finished_at backwards, partition by partition; groups by minute, outcome and duration.
WITH counted AS MATERIALIZED (
    SELECT date_bin('1 minute', finished_at, 'epoch') AS minute, outcome, duration_ms, count(*) AS attempts,
           min(finished_at) AS oldest
    FROM (
        SELECT finished_at, outcome, duration_ms
        FROM holdfast.attempt
        WHERE finished_at >= %(since)s::timestamptz
        ORDER BY finished_at DESC
        LIMIT %(most)s
    ) recent
    GROUP BY 1, 2, 3
),
lasting AS (
    SELECT duration_ms, sum(sum(attempts)) OVER (ORDER BY duration_ms) AS up_to, sum(sum(attempts)) OVER () AS timed
    FROM counted
    WHERE duration_ms IS NOT NULL
    GROUP BY duration_ms
)
SELECT whole.attempts, whole.oldest, whole.timed,
       -- As percentile_disc: the first duration that such a share does not exceed.
       (SELECT CASE WHEN count(*) > 0 THEN
                   ARRAY[min(duration_ms) FILTER (WHERE up_to >= 0.5 * timed),
                         min(duration_ms) FILTER (WHERE up_to >= 0.95 * timed),
                         min(duration_ms) FILTER (WHERE up_to >= 0.99 * timed)] END
          FROM lasting) AS durations,
       (SELECT coalesce(json_agg(json_build_array(extract(epoch FROM minute)::bigint / 60, outcome, attempts)), '[]')
          FROM (SELECT minute, outcome, sum(attempts)::bigint AS attempts FROM counted GROUP BY 1, 2) minutes
       ) AS minutes
FROM (
    SELECT coalesce(sum(attempts), 0)::bigint AS attempts, min(oldest) AS oldest,
           coalesce(sum(attempts) FILTER (WHERE duration_ms IS NOT NULL), 0)::bigint AS timed
    FROM counted
) whole


-- name: batches
-- The entries written since a moment, by minute; of the newest N batches.
-- Walks uq_batch_batch_no backwards.
WITH recent AS MATERIALIZED (
    SELECT written_at, entry_count
    FROM holdfast.batch
    ORDER BY batch_no DESC
    LIMIT %(most)s
)
SELECT (SELECT count(*) FROM recent) AS batches,
       (SELECT min(written_at) FROM recent) AS oldest,
       (SELECT coalesce(json_agg(json_build_array(minute, entries)), '[]')
          FROM (SELECT floor(extract(epoch FROM written_at) / 60)::bigint AS minute, sum(entry_count)::bigint AS entries
                  FROM recent
                 WHERE written_at >= %(since)s::timestamptz
                 GROUP BY 1) counted) AS minutes


-- name: counts
-- What may need a person, each counted up to a limit. Uses ix_batch_unrouted, uq_batch_batch_no, uq_dead_letter_open, pk_lane,
-- ix_lane_on_hold, ix_quarantine_open, ix_suppressed_overtaken, ix_transition_ahead, uq_proposal_open, pk_batch; the other tables
-- are small.
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
       open.planned AS proposals_planned, open.approved AS proposals_approved,
       held.subjects AS on_hold, held.oldest AS on_hold_seconds, held.forgotten AS on_hold_forgotten
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
    WHERE to_jsonb(v) ->> 'accepted_at' IS NULL AND NOT EXISTS (
        SELECT FROM holdfast.batch later
        WHERE later.stream = b.stream AND later.query_id = b.query_id AND later.batch_id > b.batch_id)
) diverged
CROSS JOIN (
    SELECT count(*) FILTER (WHERE approved_at IS NULL) AS planned, count(approved_at) AS approved
    FROM (SELECT approved_at FROM holdfast.proposal WHERE applied_at IS NULL AND cancelled_at IS NULL LIMIT %(most)s) p
) open
CROSS JOIN (
    -- `forgotten`: tried, and held for longer than the receiver keeps keys. Before revision 0037 the columns are those of `older`.
    SELECT count(*) AS subjects, max(l.seconds)::float8 AS oldest,
           count(*) FILTER (WHERE l.tried AND l.seconds > r.key_window_seconds) AS forgotten
    FROM (VALUES (NULL::timestamptz, NULL::timestamptz)) older (on_hold_since, on_hold_until)
    CROSS JOIN LATERAL (
        SELECT endpoint_id, claimed_sequence > delivered_sequence AS tried, extract(epoch FROM now() - on_hold_since) AS seconds
        FROM holdfast.lane
        WHERE on_hold_until > now()
        LIMIT %(most)s
    ) l
    JOIN holdfast.endpoint_pace r USING (endpoint_id)
) held


-- name: endpoints
-- The state of each endpoint: breaker, due lanes (at most 10,000 of a priority) and the age of the first, leased lanes.
-- Walks ix_lane_due from priority to priority; ix_lane_leased, pk_endpoint_pace.
WITH RECURSIVE step AS (
    SELECT p.id AS endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.token IS NULL AND l.due_at IS NOT NULL
    ) AS priority
    FROM holdfast.endpoint p
    UNION ALL
    SELECT s.endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.token IS NULL AND l.due_at IS NOT NULL
          AND l.priority > s.priority
    )
    FROM step s
    WHERE s.priority IS NOT NULL
),
waiting AS (
    SELECT s.endpoint_id, sum(due.lanes)::bigint AS lanes, min(due.oldest) AS oldest
    FROM step s
    CROSS JOIN LATERAL (
        SELECT count(*) AS lanes, min(first.due_at) AS oldest
        FROM (
            SELECT l.due_at FROM holdfast.lane l
            WHERE l.endpoint_id = s.endpoint_id AND l.priority = s.priority AND l.token IS NULL AND l.due_at <= now()
            ORDER BY l.due_at
            LIMIT 10000
        ) first
    ) due
    GROUP BY s.endpoint_id
),
leased AS (
    SELECT l.endpoint_id, count(*) AS lanes
    FROM holdfast.lane l
    WHERE l.token IS NOT NULL
    GROUP BY l.endpoint_id
)
SELECT p.name, p.state::text AS state, p.state_reason,
       r.breaker::text AS breaker, r.breaker_since, r.breaker_until, r.breaker_reason,
       CASE WHEN r.breaker IN ('open', 'half_open')
            -- Each failed probe opens it again; stalled_since is when it opened first.
            THEN extract(epoch FROM now() - coalesce(r.stalled_since, r.breaker_since))::double precision
       END AS breaker_open_seconds,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until,
       coalesce(w.lanes, 0) AS due_lanes,
       coalesce(extract(epoch FROM now() - w.oldest), 0)::double precision AS oldest_due_age_seconds,
       coalesce(leased.lanes, 0) AS leased_lanes,
       -- Same rule as `why`: an endpoint with a rate limit may have due lanes for long, but claims advance `paid_until`.
       coalesce(p.state = 'active' AND r.breaker = 'closed' AND leased.lanes IS NULL
                AND (r.held_until IS NULL OR r.held_until <= now()) AND w.oldest < now() - interval '2 minutes'
                AND (p.rate_per_second IS NULL OR r.paid_until < now() - interval '1 minute'), false) AS not_claimed
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
LEFT JOIN waiting w ON w.endpoint_id = p.id
LEFT JOIN leased ON leased.endpoint_id = p.id
ORDER BY p.name


-- name: last_answers
-- The subject of each of some lanes, and the newest attempt after its last delivery, in the order of the lanes. Uses pk_subject,
-- pk_attempt; the time of the lane's head prunes partitions.
SELECT s.name AS subject, tried.number, tried.outcome, tried.status, tried.error
FROM unnest(%(endpoint_id)s::integer[], %(subject_id)s::bigint[], %(delivered_sequence)s::bigint[], %(head_created_at)s::timestamptz[])
    WITH ORDINALITY AS l (endpoint_id, subject_id, delivered_sequence, head_created_at, number)
JOIN holdfast.subject s ON s.id = l.subject_id
LEFT JOIN LATERAL (
    SELECT a.number, a.outcome::text AS outcome, a.status, a.error
    FROM holdfast.attempt a
    WHERE a.endpoint_id = l.endpoint_id AND a.subject_id = l.subject_id AND a.sequence > l.delivered_sequence
      AND a.finished_at >= l.head_created_at - interval '1 hour'
    ORDER BY a.sequence DESC, a.number DESC, a.finished_at DESC
    LIMIT 1
) tried ON true
ORDER BY l.number


-- name: last_batches
-- The newest batches of all streams.
-- Walks uq_batch_batch_no backwards.
SELECT stream, query_id, batch_id, batch_no, written_at, routed_at, row_count, entry_count, duplicate_count,
       suppressed_count, quarantined_count
FROM holdfast.batch
ORDER BY batch_no DESC
LIMIT %(limit)s


-- name: latency
-- Time from a decision's commit to its delivery, of a sample of deliveries in each minute since a moment.
-- Uses ix_attempt_finished_at, pk_entry; scans the newest N attempts of each minute.
SELECT count(*) AS deliveries,
       percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (
           ORDER BY greatest(extract(epoch FROM a.finished_at - e.created_at), 0)::double precision) AS seconds
FROM generate_series(%(since)s::timestamptz, %(at)s::timestamptz, interval '1 minute') minute
CROSS JOIN LATERAL (
    SELECT newest.subject_id, newest.sequence, newest.finished_at
    FROM (
        SELECT a.subject_id, a.sequence, a.finished_at, a.outcome
        FROM holdfast.attempt a
        WHERE a.finished_at >= minute AND a.finished_at < minute + interval '1 minute'
        ORDER BY a.finished_at DESC
        LIMIT %(scan)s
    ) newest
    WHERE newest.outcome = 'delivered'
    LIMIT %(of_a_minute)s
) a
CROSS JOIN LATERAL (
    SELECT e.created_at
    FROM holdfast.entry e
    WHERE e.subject_id = a.subject_id AND e.sequence = a.sequence
    LIMIT 1
) e


-- name: memory
-- Gives this transaction enough memory to count many attempts without temporary files.
-- Needs no index.
SELECT set_config('work_mem', '32MB', true)


-- name: stale
-- The newest deliveries of the last 24 h that a receiver answered with `stale`: it did not apply them.
-- Uses ix_attempt_stale of two days, pk_endpoint, pk_subject.
SELECT a.endpoint_id, p.name AS endpoint, s.name AS subject, a.sequence
FROM (
    SELECT endpoint_id, subject_id, sequence, finished_at
    FROM holdfast.attempt
    WHERE finished_at >= now() - interval '24 hours' AND receipt LIKE '%%"outcome":"stale"%%'
    ORDER BY finished_at DESC
    LIMIT %(most)s
) a
JOIN holdfast.endpoint p ON p.id = a.endpoint_id
JOIN holdfast.subject s ON s.id = a.subject_id
ORDER BY p.name, a.finished_at


-- name: status_dispatchers
-- The living dispatchers: with a heartbeat since `common/heartbeats`.
-- Needs no index: a row per process.
SELECT id, host, pid, version, started_at, heartbeat_at, in_flight, draining
FROM holdfast.dispatcher_instance
WHERE heartbeat_at > %(alive_since)s
ORDER BY started_at


-- name: status_totals
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
      WHERE to_jsonb(v) ->> 'accepted_at' IS NULL AND NOT EXISTS (
          SELECT FROM holdfast.batch later WHERE later.stream = b.stream
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
               WHERE l.endpoint_id = p.id AND l.due_at > clock_timestamp() AND l.token IS NULL
                 AND l.subject_id <> ALL ($held_at(p.id)) LIMIT %(most)s) l
    ) retrying
    CROSS JOIN LATERAL (
        SELECT min(l.head_created_at) AS head_created_at
        FROM (SELECT l.head_created_at FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
                 AND l.subject_id <> ALL ($held_at(p.id))
               ORDER BY l.priority, l.due_at LIMIT %(scanned)s) l
    ) first
    CROSS JOIN LATERAL (
        SELECT min(l.head_created_at) AS head_created_at
        FROM (SELECT l.head_created_at FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
                 AND l.subject_id <> ALL ($held_at(p.id))
               ORDER BY l.priority DESC, l.due_at DESC LIMIT %(scanned)s) l
    ) last
    WHERE p.state = 'active'
) lanes
