-- name: add
-- Records a cancellation, at one endpoint or, without one, at all.
-- Unique by uq_cancellation, uq_cancellation_everywhere.
INSERT INTO holdfast.cancellation (endpoint_id, subject_id, sequence, key, cancelled_by, reason)
VALUES (%(endpoint_id)s, %(subject_id)s, %(sequence)s, %(key)s, %(actor)s, %(reason)s)
RETURNING cancelled_at


-- name: in_range
-- The cancelled entries of subjects, with the endpoint, or none for all endpoints.
-- Uses uq_cancellation.
SELECT endpoint_id, subject_id, sequence
FROM holdfast.cancellation
WHERE subject_id BETWEEN %(first_subject)s AND %(last_subject)s


-- name: known
-- Whether the database records cancellations: it does not before revision 0038.
-- Uses pg_class_relname_nsp.
SELECT to_regclass('holdfast.cancellation') IS NOT NULL AS known


-- name: lanes_take
-- Locks the lanes of a subject, in the order of pk_lane, so that the next statement sees their last versions: a claim came first
-- and is seen, or it finds the entry cancelled. Uses pk_lane of each endpoint.
SELECT count(*) AS lanes
FROM (
    SELECT FROM holdfast.lane l
    WHERE l.subject_id = %(subject_id)s AND l.endpoint_id = ANY (ARRAY(SELECT id FROM holdfast.endpoint))
    ORDER BY l.endpoint_id
    FOR NO KEY UPDATE
) taken


-- name: of_entry
-- The cancellations of an entry: the name of the endpoint, or none for all endpoints, which comes first.
-- Uses uq_cancellation, pk_endpoint.
SELECT p.name AS endpoint, c.endpoint_id, c.cancelled_at, c.cancelled_by, c.reason
FROM holdfast.cancellation c
LEFT JOIN holdfast.endpoint p ON p.id = c.endpoint_id
WHERE c.subject_id = %(subject_id)s AND c.sequence = %(sequence)s
ORDER BY p.name NULLS FIRST


-- name: of_key
-- The cancellations of a key, also of one whose entry is no longer stored.
-- Uses ix_cancellation_key, pk_endpoint.
SELECT p.name AS endpoint, c.endpoint_id, c.cancelled_at, c.cancelled_by, c.reason
FROM holdfast.cancellation c
LEFT JOIN holdfast.endpoint p ON p.id = c.endpoint_id
WHERE c.key = %(key)s
ORDER BY p.name NULLS FIRST


-- name: of_subjects
-- The cancelled entries among those of some subjects and sequences, with the endpoint, or none for all endpoints.
-- Uses uq_cancellation, pk_endpoint.
SELECT c.subject_id, c.sequence, p.name AS endpoint
FROM unnest(%(subject_ids)s::bigint[], %(sequences)s::bigint[]) AS e (subject_id, sequence)
JOIN holdfast.cancellation c ON c.subject_id = e.subject_id AND c.sequence = e.sequence
LEFT JOIN holdfast.endpoint p ON p.id = c.endpoint_id


-- name: pass
-- Has a lane, which the caller has locked, pass an entry: the table's trigger keeps claims before it, and moves the lane past it
-- when it is reached. What a claim took and gave back is as if it had never been claimed. Uses pk_lane.
UPDATE holdfast.lane
SET cancelled = coalesce(cancelled, '{}') || %(sequence)s::bigint,
    claimed_sequence = least(claimed_sequence, %(sequence)s - 1)
WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s


-- name: route_lock
-- Excludes routing for this transaction, after running ones end: an entry that is not routed yet has no lane to lock.
-- A statement of its own, so that the snapshots of the next ones see every lane made before. Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.route'))


-- name: standing
-- What became of an entry at each endpoint: whether the endpoint takes it, its lane, its attempts, a replay that may send it,
-- and whether it is cancelled there alone. Uses uq_cancellation, pk_lane, pk_attempt, ix_replay_item_open, pk_replay.
SELECT p.id AS endpoint_id, p.name AS endpoint,
       (p.types = '{}' OR %(type)s = ANY (p.types)) AND $takes_stream(p.id, %(batch_no)s)
       AND (p.starts_after IS NULL OR %(batch_no)s > p.starts_after OR %(batch_no)s::bigint <@ p.starts_late) AS takes,
       l.delivered_sequence, l.claimed_sequence, l.token IS NOT NULL AS leased,
       tried.attempts, tried.delivered_at, i.replay_id,
       EXISTS (
           SELECT FROM holdfast.cancellation c
           WHERE c.subject_id = %(subject_id)s AND c.sequence = %(sequence)s AND c.endpoint_id = p.id
       ) AS cancelled
FROM holdfast.endpoint p
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
CROSS JOIN LATERAL (
    SELECT count(*) AS attempts, min(a.finished_at) FILTER (WHERE a.outcome = 'delivered') AS delivered_at
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
      AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour'
) tried
LEFT JOIN LATERAL (
    SELECT o.replay_id
    FROM holdfast.replay_item o
    JOIN holdfast.replay y ON y.id = o.replay_id AND (y.state IN ('planned', 'applying') OR o.token IS NOT NULL)
    WHERE o.endpoint_id = p.id AND o.subject_id = %(subject_id)s AND o.sequence = %(sequence)s AND o.settled_at IS NULL
    LIMIT 1
) i ON true
ORDER BY p.name


-- name: unaudited
-- I15: every cancellation of a time range has its audit row, written in its transaction.
-- Reads cancellation and, by ix_operator_action_target, the rows of its entries.
WITH violations AS (
    SELECT 'hf_' || replace(c.key::text, '-', '') AS key, c.cancelled_at
    FROM holdfast.cancellation c
    WHERE c.cancelled_at >= %(since)s AND c.cancelled_at < %(until)s
      AND NOT EXISTS (
          SELECT FROM holdfast.operator_action o
          WHERE o.target = 'entry hf_' || replace(c.key::text, '-', '') AND o.action = 'entry.cancel'
            AND o.acted_at BETWEEN c.cancelled_at - interval '10 minutes' AND c.cancelled_at)
)
SELECT 'unaudited' AS rule, count, format('cancellation of %%s was made at %%s', key, cancelled_at) AS detail
FROM (
    SELECT v.*, count(*) OVER () AS count, row_number() OVER (ORDER BY cancelled_at, key) AS place FROM violations v
) numbered
WHERE place <= %(limit)s


-- name: violations
-- I17: a cancelled entry was never sent to the endpoint, and will not be: its lane has passed it or will, and no replay has it.
-- Uses uq_cancellation, pk_lane, pk_attempt, ix_replay_item_open.
WITH found AS MATERIALIZED (
    SELECT c.subject_id, c.sequence, c.key, l.delivered_sequence, l.cancelled AS ahead,
           l.delivered_sequence < c.sequence AND NOT coalesce(c.sequence = ANY (l.cancelled), false)
           AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no) AS unkept
    FROM holdfast.cancellation c
    JOIN holdfast.endpoint p ON p.id = %(endpoint_id)s
    JOIN holdfast.entry e ON e.subject_id = c.subject_id AND e.sequence = c.sequence
    LEFT JOIN holdfast.lane l
      ON l.endpoint_id = %(endpoint_id)s AND l.subject_id = c.subject_id
     AND l.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
    WHERE c.subject_id BETWEEN %(first_subject)s AND %(last_subject)s AND coalesce(c.endpoint_id, p.id) = p.id
),
violations AS (
    SELECT v.rule, f.subject_id, f.sequence, f.key, v.detail
    FROM found f
    CROSS JOIN LATERAL (VALUES
        ('cancelled_sent', EXISTS (
            SELECT FROM holdfast.attempt a
            WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = f.subject_id AND a.sequence = f.sequence OFFSET 0),
         'it has an attempt'),
        ('cancelled_waits', coalesce(f.unkept, false), format('its lane is at %%s and will claim it', f.delivered_sequence)),
        ('cancelled_waits', EXISTS (
            SELECT FROM holdfast.replay_item i
            WHERE i.endpoint_id = %(endpoint_id)s AND i.subject_id = f.subject_id AND i.sequence = f.sequence
              AND i.settled_at IS NULL AND i.kind = 'resend' OFFSET 0),
         'a replay has it')
    ) AS v (rule, violated, detail)
    WHERE v.violated
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.key, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, NULL, 'cancelled' FROM found
