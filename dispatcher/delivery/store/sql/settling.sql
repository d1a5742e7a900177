-- name: attempt_copy
-- Records attempts, in the transaction that settles their lanes.
-- Unique by pk_attempt.
COPY holdfast.attempt (
    endpoint_id, subject_id, sequence, number, finished_at, token, outcome, status, duration_ms,
    error, response, receipt, retry_at
) FROM STDIN


-- name: attempt_recorded
-- Which of these leases have a recorded attempt that was settled, not rescued: the COMMIT in doubt succeeded.
-- Uses pk_attempt; a settlement in doubt is never older than its lease, so one day prunes enough.
SELECT DISTINCT r.endpoint_id, r.subject_id, r.token
FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(tokens)s::uuid[],
            %(sequences)s::bigint[]) AS r (endpoint_id, subject_id, token, sequence)
JOIN holdfast.attempt a
  ON a.endpoint_id = r.endpoint_id AND a.subject_id = r.subject_id AND a.sequence = r.sequence
 AND a.token = r.token AND a.duration_ms IS NOT NULL
 AND a.finished_at > now() - interval '1 day'


-- name: dead_letter_add
-- Makes entries dead letters, in the transaction that settles their lanes.
-- Unique by uq_dead_letter_open: an entry has at most one open dead letter.
INSERT INTO holdfast.dead_letter (
    endpoint_id, subject_id, sequence, key, created_at, reason, detail, attempts
)
SELECT *
FROM unnest(
    %(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[],
    %(keys)s::uuid[], %(created_ats)s::timestamptz[], %(reasons)s::holdfast.dead_reason[],
    %(details)s::text[], %(attempts)s::integer[]
)
ON CONFLICT DO NOTHING


-- name: endpoint_gone
-- Disables an endpoint that answered 410, with its audit row; does nothing if it is disabled already.
-- Uses pk_endpoint.
WITH gone AS (
    UPDATE holdfast.endpoint
    SET state = 'disabled', state_reason = %(reason)s, updated_at = now()
    WHERE id = %(endpoint_id)s AND state <> 'disabled'
    RETURNING name
)
INSERT INTO holdfast.operator_action (actor, action, target, reason)
SELECT 'dispatcher', 'endpoint.disabled', name, %(reason)s
FROM gone


-- name: lane_hold
-- Locks lanes, so that the next statement, which has its own snapshot, sees their last versions. Uses pk_lane, in whose order
-- the rows are locked, as routing does, so that the two cannot deadlock.
SELECT count(*) AS lanes
FROM (
    SELECT *
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[]) AS g (endpoint_id, subject_id)
    ORDER BY endpoint_id, subject_id
) given
CROSS JOIN LATERAL (
    -- Backwards: if an old snapshot keeps every version of a lane, the newest comes first. Written as a range, because rows of one
    -- subject would need no order.
    SELECT
    FROM holdfast.lane
    WHERE lane.endpoint_id = given.endpoint_id
      AND lane.subject_id BETWEEN given.subject_id AND given.subject_id
    ORDER BY lane.subject_id DESC, lane.turn DESC
    LIMIT 1
    FOR NO KEY UPDATE
) lane


-- name: lane_settle
-- Ends leases whose token is still the lane's, and returns those lanes. A missing lane lost its lease, or was changed between
-- snapshot and lock; `lane_hold` finds the latter by locking it first. Updates each lane in place: another access through
-- pk_lane would visit every version that an old snapshot keeps. Uses pk_lane, backwards as in `lane_hold`.
WITH held AS MATERIALIZED (
    SELECT r.*, l.version,
           -- The endpoint's running clock.
           (extract(epoch FROM CASE
               WHEN p.stalled_since IS NULL THEN now()
               ELSE least(now(), p.stalled_since) + greatest(now() - p.stalled_until, '0')
           END) * 1000000)::bigint - p.stalled_us AS running_us,
           p.failures > 0 OR p.breaker <> 'closed' OR e.rate_per_second IS NOT NULL AS paced
    FROM unnest(
        %(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(tokens)s::uuid[],
        %(delivered)s::bigint[], %(attempts)s::integer[], %(rescued)s::integer[],
        %(delays_us)s::bigint[], %(asked_us)s::bigint[], %(stopped)s::boolean[]
    ) AS r (endpoint_id, subject_id, token, delivered_sequence, attempt, rescued, delay_us, asked_us, stopped)
    CROSS JOIN LATERAL (
        SELECT lane.ctid AS version, lane.token
        FROM holdfast.lane
        WHERE lane.endpoint_id = r.endpoint_id AND lane.subject_id BETWEEN r.subject_id AND r.subject_id
        ORDER BY lane.subject_id DESC, lane.turn DESC
        LIMIT 1
    ) l
    JOIN holdfast.endpoint_pace p ON p.endpoint_id = r.endpoint_id
    JOIN holdfast.endpoint e ON e.id = r.endpoint_id
    WHERE l.token = r.token
    -- The lock order of lanes everywhere, so that two transactions cannot deadlock.
    ORDER BY r.endpoint_id, r.subject_id
)
UPDATE holdfast.lane
SET delivered_sequence = held.delivered_sequence,
    attempt = held.attempt,
    rescued = held.rescued,
    token = NULL,
    lease_until = NULL,
    turn = lane.turn + 1,
    -- The running clock stops during a Retry-After; for the entry that got it, that time counts.
    tried_since_us = CASE
        WHEN held.attempt = 0 THEN NULL
        WHEN held.delivered_sequence = lane.delivered_sequence
            THEN coalesce(lane.tried_since_us, held.running_us)
        ELSE held.running_us
    END - held.asked_us,
    due_at = CASE
        WHEN held.stopped THEN NULL
        WHEN held.delay_us IS NOT NULL THEN now() + held.delay_us * interval '1 microsecond'
        WHEN held.delivered_sequence < lane.last_sequence THEN now()
    END
FROM held
WHERE lane.ctid = held.version AND lane.token = held.token
RETURNING lane.endpoint_id, lane.subject_id, held.token, lane.due_at, now() AS settled_at,
          held.paced
