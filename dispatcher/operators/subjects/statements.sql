-- name: find
-- A subject by its name, with its newest transition state; no row for an unknown name.
-- Uses uq_subject_name, pk_transition.
SELECT s.id, s.name, s.last_sequence, newest.last_type, newest.last_occurred_at, s.last_created_at AS last_written_at
FROM holdfast.subject s
LEFT JOIN LATERAL (
    SELECT t.last_type, t.last_occurred_at
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
    ORDER BY t.updated_at DESC
    LIMIT 1
) newest ON true
WHERE s.name = %(subject)s


-- name: held_ids
-- The subjects with lanes that wait for one reason, or any; scans at most N lanes of a kind for each endpoint, and `complete`
-- says whether those are all. Uses ix_lane_due of each endpoint, ix_lane_leased, ix_lane_on_hold, uq_dead_letter_open, pk_lane.
WITH due AS MATERIALIZED (
    SELECT l.subject_id, l.attempt
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        SELECT l.subject_id, l.attempt
        FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
          AND l.subject_id <> ALL ($held_at(p.id))
        ORDER BY l.priority, l.due_at
        LIMIT CASE WHEN %(held)s::text IN ('stopped', 'on_hold') THEN 0 ELSE %(most)s END
    ) l
),
leased AS MATERIALIZED (
    SELECT l.subject_id
    FROM holdfast.lane l
    WHERE l.token IS NOT NULL AND NOT $on_hold(l)
    ORDER BY l.lease_until
    LIMIT CASE WHEN %(held)s::text IN ('stopped', 'retrying', 'on_hold') THEN 0 ELSE %(most)s END
),
on_hold AS MATERIALIZED (
    SELECT unnest($held_at(p.id)) AS subject_id
    FROM holdfast.endpoint p
    WHERE %(held)s::text IN ('on_hold', 'any')
    LIMIT %(most)s
),
dead AS MATERIALIZED (
    SELECT d.endpoint_id, d.subject_id
    FROM holdfast.dead_letter d
    WHERE d.resolution IS NULL
    ORDER BY d.endpoint_id, d.subject_id
    LIMIT CASE WHEN %(held)s::text IN ('retrying', 'behind', 'on_hold') THEN 0 ELSE %(most)s END
),
held AS (
    SELECT subject_id FROM due
    WHERE %(held)s::text = 'any' OR (attempt > 0) = (%(held)s::text = 'retrying')
    UNION
    SELECT subject_id FROM leased
    UNION
    SELECT subject_id FROM on_hold
    UNION
    SELECT dead.subject_id
    FROM dead
    -- Every stopped lane has an open dead letter.
    JOIN LATERAL (
        SELECT FROM holdfast.lane l
        WHERE l.endpoint_id = dead.endpoint_id AND l.subject_id = dead.subject_id
          AND l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < l.last_sequence AND NOT $on_hold(l)
        LIMIT 1
    ) stopped ON true
)
SELECT coalesce((SELECT array_agg(subject_id) FROM held), '{}') AS ids,
       (SELECT count(*) FROM due) < %(most)s AND (SELECT count(*) FROM leased) < %(most)s
       AND (SELECT count(*) FROM dead) < %(most)s AND (SELECT count(*) FROM on_hold) < %(most)s AS complete


-- name: hold
-- Holds a lane, which the caller has locked; the table's trigger keeps its due time to the end of the hold.
-- Uses pk_lane.
UPDATE holdfast.lane
SET on_hold_since = %(since)s, on_hold_until = %(until)s, on_hold_by = %(by)s, on_hold_reason = %(reason)s
WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s


-- name: hold_end
-- Ends the hold of a lane, which the caller has locked; the table's trigger makes it due by what was left before the hold.
-- Uses pk_lane.
UPDATE holdfast.lane
SET on_hold_since = NULL, on_hold_until = NULL, on_hold_by = NULL, on_hold_reason = NULL
WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s


-- name: hold_in_flight
-- Whether something of a subject was claimed for an endpoint and is not settled, by its lane or by a replay. A statement of its
-- own after the lane is locked, so that it sees every claim that came first. Uses pk_lane, ix_replay_item_open.
SELECT EXISTS (
    SELECT FROM holdfast.lane WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s AND token IS NOT NULL
) OR EXISTS (
    SELECT FROM holdfast.replay_item
    WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s AND settled_at IS NULL AND token IS NOT NULL
) AS in_flight


-- name: hold_take
-- Locks a lane and returns its hold, if it has one; whether something was claimed that is not delivered, and how long the receiver
-- keeps keys. Uses uq_endpoint_name, uq_subject_name, pk_lane, pk_endpoint_pace.
SELECT l.endpoint_id, l.subject_id, CASE WHEN l.on_hold_until > now() THEN to_jsonb(l) END AS hold,
       l.claimed_sequence > l.delivered_sequence AS tried, r.key_window_seconds, now() AS now
FROM holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
JOIN holdfast.subject s ON s.id = l.subject_id
WHERE p.name = %(endpoint)s AND s.name = %(subject)s
FOR NO KEY UPDATE OF l


-- name: lane_pass
-- Moves a lane, which the caller has locked, past sequences that are not stored. It is due now if more is to be delivered.
-- Uses pk_lane.
UPDATE holdfast.lane
SET delivered_sequence = %(passed)s::bigint,
    due_at = CASE WHEN %(passed)s::bigint < last_sequence THEN now() END,
    attempt = 0,
    rescued = 0,
    tried_since_us = NULL
WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s


-- name: lane_take
-- Locks a lane and returns its state: its position, the first stored entry after it, whether the endpoint takes only some types or streams.
-- Uses uq_endpoint_name, uq_subject_name, pk_lane, pk_entry.
SELECT l.endpoint_id, l.subject_id, l.delivered_sequence, l.last_sequence, l.token IS NOT NULL AS leased,
       l.due_at IS NOT NULL AS due, p.types <> '{}' OR $chooses(p.id) AS chooses, (
           SELECT e.sequence
           FROM holdfast.entry e
           WHERE e.subject_id = l.subject_id
             AND e.sequence > l.delivered_sequence AND e.sequence <= $routed(l)
           ORDER BY e.sequence
           LIMIT 1
       ) AS found
FROM holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id
JOIN holdfast.subject s ON s.id = l.subject_id
WHERE p.name = %(endpoint)s AND s.name = %(subject)s
FOR NO KEY UPDATE OF l


-- name: lanes
-- Every lane of a subject: its position, head, due time, lease, and what stops it.
-- Uses pk_lane of each endpoint, pk_endpoint_pace, pk_entry, uq_dead_letter_open.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, p.order_policy::text AS order_policy,
       CASE WHEN l.token IS NOT NULL THEN 'leased'
            WHEN l.due_at IS NOT NULL THEN 'due'
            WHEN l.delivered_sequence < l.last_sequence THEN 'stopped'
            ELSE 'idle' END AS state,
       CASE WHEN $on_hold(l) THEN 'on_hold'
            WHEN l.delivered_sequence = l.last_sequence THEN NULL
            WHEN l.token IS NOT NULL THEN 'behind'
            WHEN l.due_at IS NULL THEN 'stopped'
            WHEN l.attempt > 0 THEN 'retrying'
            ELSE 'behind' END AS held,
       CASE WHEN $on_hold(l) THEN to_jsonb(l) END AS on_hold,
       l.delivered_sequence, $routed(l) AS last_sequence, waiting.entries AS waiting,
       head.sequence AS head_sequence, head.key AS head_key, head.type AS head_type, head.created_at AS head_written_at,
       l.attempt, l.rescued, l.priority, CASE WHEN NOT $on_hold(l) THEN l.due_at END AS due_at, l.lease_until,
       d.id AS dead_letter, d.reason::text AS dead_reason, d.died_at,
       r.breaker::text AS breaker, r.breaker_until, CASE WHEN r.held_until > now() THEN r.held_until END AS held_until
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
CROSS JOIN LATERAL (
    SELECT *
    FROM holdfast.lane l
    WHERE l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
    LIMIT 1
) l
LEFT JOIN LATERAL (
    SELECT e.sequence, e.key, e.type, e.created_at
    FROM holdfast.entry e
    WHERE e.subject_id = %(subject_id)s AND e.sequence > l.delivered_sequence AND e.sequence <= $routed(l)
      AND NOT $cancelled(l, e.sequence)
      -- Prunes partitions, as the claim does.
      AND e.created_at >= l.head_created_at - interval '1 hour'
      AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
    ORDER BY e.sequence
    LIMIT 1
) head ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS entries
    FROM (
        SELECT
        FROM holdfast.entry e
        WHERE e.subject_id = %(subject_id)s AND e.sequence > l.delivered_sequence AND e.sequence <= $routed(l)
          AND NOT $cancelled(l, e.sequence)
          AND e.created_at >= l.head_created_at - interval '1 hour'
          AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
        ORDER BY e.sequence
        LIMIT %(waiting_max)s
    ) counted
) waiting
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = p.id AND d.subject_id = %(subject_id)s AND d.sequence = head.sequence AND d.resolution IS NULL
ORDER BY p.name


-- name: list
-- Subjects in the order of their names, with a prefix, after a name, of some ids if given; each with the state of its lanes.
-- Uses ix_subject_name, or pk_subject for ids; pk_lane of each endpoint, pk_transition.
SELECT s.name, s.last_sequence, newest.last_type, s.last_created_at AS last_written_at,
       lanes.lanes, lanes.stopped, lanes.retrying, lanes.behind, lanes.on_hold, lanes.undelivered, lanes.oldest_due_at
FROM (
    SELECT id, name, last_sequence, last_created_at
    FROM holdfast.subject
    WHERE (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s::bigint[]))
      AND name COLLATE "C" > %(after)s::text AND name COLLATE "C" >= %(prefix)s::text
      AND (%(beyond)s::text IS NULL OR name COLLATE "C" < %(beyond)s::text)
    ORDER BY name COLLATE "C"
    LIMIT %(limit)s
) s
CROSS JOIN LATERAL (
    SELECT count(l.endpoint_id) AS lanes,
           count(*) FILTER (WHERE l.state = 'stopped') AS stopped,
           count(*) FILTER (WHERE l.state = 'retrying') AS retrying,
           count(*) FILTER (WHERE l.state = 'behind') AS behind,
           count(*) FILTER (WHERE l.state = 'on_hold') AS on_hold,
           coalesce(max(l.routed_sequence - l.delivered_sequence), 0) AS undelivered,
           min(l.due_at) FILTER (WHERE l.state <> 'on_hold') AS oldest_due_at
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        SELECT l.endpoint_id, $routed(l) AS routed_sequence, l.delivered_sequence, l.due_at,
               CASE WHEN $on_hold(l) THEN 'on_hold'
                    WHEN l.delivered_sequence = l.last_sequence THEN NULL
                    WHEN l.token IS NOT NULL THEN 'behind'
                    WHEN l.due_at IS NULL THEN 'stopped'
                    WHEN l.attempt > 0 THEN 'retrying'
                    ELSE 'behind' END AS state
        FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.subject_id = s.id
        LIMIT 1
    ) l
) lanes
LEFT JOIN LATERAL (
    SELECT t.last_type
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
    ORDER BY t.updated_at DESC
    LIMIT 1
) newest ON true
ORDER BY s.name COLLATE "C"


-- name: repair_forget
-- Deletes the transition state of a locked subject in a stream: its next decision there is always written.
-- Uses pk_transition.
DELETE FROM holdfast.transition
WHERE subject_id = %(subject_id)s AND stream = %(stream)s


-- name: repair_lock
-- Locks the subject's row until COMMIT, as the sink does, so that nobody else moves its transition states. Read them afterwards,
-- in a statement of its own. Uses pk_subject.
SELECT holdfast.lock_subject(%(subject_id)s)


-- name: repair_move
-- Replaces the transition state of a locked subject in a stream.
-- Uses pk_transition.
UPDATE holdfast.transition
SET last_type = %(last_type)s, last_occurred_at = %(last_occurred_at)s
WHERE subject_id = %(subject_id)s AND stream = %(stream)s


-- name: repair_overtaken
-- The overtaken decisions of a subject in a stream since a moment, the oldest first, and their total.
-- Uses ix_suppressed_subject_id of the days from the moment on, uq_batch_batch_no.
SELECT x.key, x.type, x.occurred_at, x.suppressed_at, b.stream, b.batch_id, count(*) OVER () AS count
FROM holdfast.suppressed x
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.stream s ON s.name = b.stream
WHERE x.subject_id = %(subject_id)s AND x.cause = 'overtaken' AND x.suppressed_at >= %(ahead_since)s
  AND coalesce(s.acts_for, s.name) = %(stream)s
ORDER BY x.suppressed_at, x.occurred_at, x.key
LIMIT %(limit)s


-- name: repair_snapshot
-- Makes the transaction read one snapshot and write nothing. First statement of its transaction.
-- Needs no index.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY


-- name: repair_state
-- The transition state of a subject in a stream, locked until COMMIT: a rename of the stream comes before or after.
-- Uses pk_transition.
SELECT last_type, last_occurred_at, updated_at
FROM holdfast.transition
WHERE subject_id = %(subject_id)s AND stream = %(stream)s
FOR UPDATE


-- name: repair_states
-- The transition states of a subject beside its stored entries: the type of the newest entry, which receivers have applied; the
-- latest time up to the limit; when the first entry after the limit was written.
-- Uses pk_transition, pk_entry of the subject, uq_batch_batch_no.
SELECT t.stream, t.last_type, t.last_occurred_at, t.updated_at, t.last_occurred_at > given.latest AS ahead, given.latest,
       stored.last_type AS stored_type, stored.last_occurred_at AS stored_occurred_at,
       coalesce(stored.ahead_since, t.updated_at) AS ahead_since
FROM holdfast.transition t
CROSS JOIN (SELECT clock_timestamp() + %(tolerance)s::interval AS latest) given
CROSS JOIN LATERAL (
    SELECT (array_agg(e.type ORDER BY e.sequence DESC))[1] AS last_type,
           max(e.occurred_at) FILTER (WHERE e.occurred_at <= given.latest) AS last_occurred_at,
           min(e.created_at) FILTER (WHERE e.occurred_at > given.latest) AS ahead_since
    FROM holdfast.entry e
    JOIN holdfast.batch b USING (batch_no)
    JOIN holdfast.stream s ON s.name = b.stream
    WHERE e.subject_id = t.subject_id AND coalesce(s.acts_for, s.name) = t.stream
) stored
WHERE t.subject_id = %(subject_id)s
ORDER BY t.stream


-- name: silenced_ids
-- Subjects with a transition state that is more than a day ahead of the clock, up to a number of them.
-- Uses ix_transition_ahead.
SELECT coalesce(array_agg(DISTINCT subject_id), '{}') AS ids
FROM (
    SELECT subject_id
    FROM holdfast.transition
    WHERE ahead AND last_occurred_at > clock_timestamp() + interval '1 day'
    LIMIT %(most)s
) silenced


-- name: transitions
-- The transition states of a subject, one for each stream, the newest first; those `ahead` of the clock silence it.
-- Uses pk_transition.
SELECT stream, last_type, last_occurred_at, updated_at,
       last_occurred_at > clock_timestamp() + interval '1 day' AS ahead
FROM holdfast.transition
WHERE subject_id = %(subject_id)s
ORDER BY updated_at DESC, stream


-- name: walk
-- Among the next N subjects in the order of their names, those with lanes that wait for one reason, or any; and the last scanned
-- name. Uses ix_subject_name, pk_lane of each endpoint.
SELECT count(*) AS scanned, max(s.name COLLATE "C") AS until,
       coalesce((array_agg(s.id ORDER BY s.name COLLATE "C") FILTER (WHERE held.it))[1:%(limit)s], '{}') AS ids
FROM (
    SELECT id, name
    FROM holdfast.subject
    WHERE name COLLATE "C" > %(after)s::text AND name COLLATE "C" >= %(prefix)s::text
      AND (%(beyond)s::text IS NULL OR name COLLATE "C" < %(beyond)s::text)
    ORDER BY name COLLATE "C"
    LIMIT %(scan)s
) s
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT
        FROM holdfast.endpoint p
        CROSS JOIN LATERAL (
            SELECT l.attempt, l.token, l.due_at, $on_hold(l) AS on_hold
            FROM holdfast.lane l
            WHERE l.endpoint_id = p.id AND l.subject_id = s.id AND (l.delivered_sequence < l.last_sequence OR $on_hold(l))
            LIMIT 1
        ) l
        WHERE CASE WHEN l.on_hold THEN %(held)s::text IN ('on_hold', 'any') ELSE CASE %(held)s::text
            WHEN 'on_hold' THEN false
            WHEN 'stopped' THEN l.token IS NULL AND l.due_at IS NULL
            WHEN 'retrying' THEN l.token IS NULL AND l.due_at IS NOT NULL AND l.attempt > 0
            WHEN 'behind' THEN l.token IS NOT NULL OR l.due_at IS NOT NULL AND l.attempt = 0
            ELSE true
        END END
    ) AS it
) held
