-- name: action
-- Who changed an endpoint's state last, among the newest 10,000 actions.
-- Uses pk_operator_action backwards.
SELECT actor AS acted_by, acted_at
FROM holdfast.operator_action
WHERE id > (SELECT coalesce(max(id), 0) - 10000 FROM holdfast.operator_action)
  AND action = %(action)s AND target = %(endpoint)s
ORDER BY id DESC
LIMIT 1


-- name: day
-- Whether the partition of a moment's day (UTC) exists.
-- Uses the catalogue's own index.
SELECT to_regclass('holdfast.entry_' || to_char(%(at)s::timestamptz AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL AS stored


-- name: dispatchers
-- The dispatchers with the newest heartbeats, crashed ones too; alive means a heartbeat since
-- `common/heartbeats`.
-- Needs no index: a row per process.
SELECT host, pid, version, started_at, heartbeat_at, in_flight, draining,
       heartbeat_at > %(alive_since)s AS alive
FROM holdfast.dispatcher_instance
ORDER BY heartbeat_at DESC
LIMIT 20


-- name: entry
-- An entry by its subject and sequence, with its batch and the transaction that locks the batch.
-- Uses pk_entry, uq_batch_batch_no, pk_subject.
SELECT e.subject_id, s.name AS subject, e.sequence, e.created_at AS written_at, e.key, e.type, e.occurred_at,
       b.stream, b.query_id, b.batch_id, b.batch_no, b.written_at, b.routed_at, b.xmax::text AS xmax
FROM holdfast.entry e
JOIN holdfast.subject s ON s.id = e.subject_id
JOIN holdfast.batch b USING (batch_no)
WHERE e.subject_id = %(subject_id)s AND e.sequence = %(sequence)s


-- name: exclusive
-- Sessions with an exclusive lock on one of our tables, the oldest transaction first.
-- Needs no index: a row per lock.
SELECT DISTINCT a.pid, a.application_name, a.state, a.backend_xid::text AS backend_xid, a.backend_xmin IS NOT NULL AS snapshot,
       extract(epoch FROM clock_timestamp() - a.xact_start)::double precision AS transaction_seconds,
       '{}'::integer[] AS blocked_by, left(a.query, 200) AS query
FROM pg_locks k
JOIN pg_class c ON c.oid = k.relation
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_stat_activity a ON a.pid = k.pid
WHERE n.nspname = 'holdfast' AND k.granted AND k.mode = 'AccessExclusiveLock'
  AND k.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND a.pid <> pg_backend_pid()
ORDER BY transaction_seconds DESC


-- name: heads
-- What to explain of a subject at each endpoint: the head of its lane, else the first entry of an unrouted batch, else the last
-- delivery. Uses pk_lane, pk_entry, ix_batch_unrouted, uq_batch_batch_no, pk_attempt.
SELECT p.id AS endpoint_id, p.name AS endpoint,
       -- With all types of all streams taken, a missing sequence is a gap.
       coalesce(l.delivered_sequence < l.last_sequence, false) AND p.types = '{}' AND NOT $chooses(p.id) AS waits,
       l.delivered_sequence AS lane_delivered_sequence, CASE WHEN $on_hold(l) THEN to_jsonb(l) END AS on_hold,
       coalesce(head.sequence, coming.sequence) AS sequence,
       done.sequence AS delivered_sequence, done.number AS delivered_number, done.status AS delivered_status,
       done.finished_at AS delivered_at, done.receipt
FROM holdfast.endpoint p
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
LEFT JOIN LATERAL (
    SELECT e.sequence
    FROM holdfast.entry e
    WHERE e.subject_id = %(subject_id)s
      AND e.sequence > l.delivered_sequence AND e.sequence <= $routed(l) AND NOT $cancelled(l, e.sequence)
      -- Prunes partitions, as the claim does.
      AND e.created_at >= l.head_created_at - interval '1 hour'
      AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
    ORDER BY e.sequence
    LIMIT 1
) head ON true
LEFT JOIN LATERAL (
    SELECT e.sequence
    FROM holdfast.entry e
    JOIN holdfast.batch b ON b.batch_no = e.batch_no AND b.routed_at IS NULL
    WHERE head.sequence IS NULL AND e.subject_id = %(subject_id)s AND e.sequence > coalesce($routed(l), 0)
      AND NOT $cancelled(l, e.sequence)
      AND e.created_at >= (SELECT min(u.written_at) FROM holdfast.batch u WHERE u.routed_at IS NULL)
      AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
      AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    ORDER BY e.sequence
    LIMIT 1
) coming ON true
LEFT JOIN LATERAL (
    SELECT a.sequence, a.number, a.status, a.finished_at, a.receipt
    FROM holdfast.attempt a
    WHERE head.sequence IS NULL AND coming.sequence IS NULL
      AND a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.outcome = 'delivered'
    ORDER BY a.sequence DESC, a.number DESC, a.finished_at DESC
    LIMIT 1
) done ON true
WHERE %(endpoint_id)s::integer IS NULL OR p.id = %(endpoint_id)s::integer
ORDER BY p.name


-- name: moment
-- The database's clock, at the beginning of this transaction.
-- Needs no index.
SELECT now() AS at


-- name: patience
-- Limits how long this transaction waits for a locked table.
-- Needs no index.
SELECT set_config('lock_timeout', %(lock_timeout)s, true)


-- name: quarantined
-- The quarantined rows, among the newest 10,000, that contain a text, the newest first. Before revision 0033 `rule` is of `older`.
-- Uses pk_quarantine backwards, uq_batch_batch_no.
SELECT q.id, q.reason::text AS reason, q.by_rule AS rule, q.quarantined_at, q.resolution::text AS resolution, b.stream, b.batch_id
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
LEFT JOIN holdfast.batch b USING (batch_no)
WHERE q.id > (SELECT coalesce(max(id), 0) - 10000 FROM holdfast.quarantine)
  AND (position(%(text)s::text IN q.row) > 0 OR position(%(text)s::text IN q.detail) > 0)
ORDER BY q.id DESC
LIMIT 5


-- name: replays
-- Replays that are being applied and have not sent an entry yet.
-- Reads replay, a row per plan; uses pk_replay_item.
SELECT DISTINCT r.id
FROM holdfast.replay r
JOIN holdfast.replay_item i ON i.replay_id = r.id
WHERE r.state = 'applying' AND i.subject_id = %(subject_id)s AND i.sequence = %(sequence)s AND i.settled_at IS NULL


-- name: resolved
-- The last resolution of a dead letter of an entry, among the newest 10,000 letters.
-- Uses pk_dead_letter backwards.
SELECT id AS resolved_letter, resolution::text AS resolution, resolved_at, resolved_by
FROM holdfast.dead_letter
WHERE id > (SELECT coalesce(max(id), 0) - 10000 FROM holdfast.dead_letter)
  AND endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s AND sequence = %(sequence)s
  AND resolution IS NOT NULL
ORDER BY id DESC
LIMIT 1


-- name: sessions
-- Sessions of this database in a transaction, or waiting for a lock: what blocks them, what they hold.
-- Needs no index: a row per connection.
SELECT pid, application_name, state, backend_xid::text AS backend_xid, backend_xmin IS NOT NULL AS snapshot,
       extract(epoch FROM clock_timestamp() - xact_start)::double precision AS transaction_seconds,
       CASE WHEN wait_event_type = 'Lock' THEN pg_blocking_pids(pid) ELSE '{}' END AS blocked_by,
       left(query, 200) AS query
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND (xact_start IS NOT NULL OR backend_xid IS NOT NULL)
ORDER BY xact_start
LIMIT 1000


-- name: standing
-- The state of an entry at each endpoint, and everything that may hold it: endpoint and pace, lane and head, dead letter,
-- attempts. Uses pk_endpoint_pace, pk_lane, ix_lane_due, ix_lane_leased, uq_dead_letter_open, pk_attempt, pk_entry.
SELECT p.id AS endpoint_id, p.name AS endpoint, p.state::text AS endpoint_state, p.state_reason, p.types, p.starts_at,
       $streams(p.id) AS streams, $stream_of(%(batch_no)s) AS stream, $takes_stream(p.id, %(batch_no)s) AS takes_stream,
       %(batch_no)s <= p.starts_after AND NOT %(batch_no)s::bigint <@ p.starts_late AS before_start,
       p.created_at AS added_at, p.updated_at AS changed_at, p.order_policy::text AS order_policy, p.rate_per_second,
       p.secret_refs, p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref,
       r.breaker::text AS breaker, r.breaker_until, r.breaker_reason, r.held_until, r.held_by, r.paid_until,
       l.delivered_sequence AS lane_delivered_sequence, $routed(l) AS last_sequence, l.attempt AS lane_attempt, l.due_at, l.lease_until,
       CASE WHEN $on_hold(l) THEN to_jsonb(l) END AS on_hold,
       head.sequence AS head_sequence,
       d.id AS dead_letter, d.reason::text AS dead_reason, d.detail AS dead_detail, d.died_at, d.attempts AS dead_attempts,
       coalesce(l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < %(sequence)s, false) AS lane_stopped,
       coalesce(tried.number, 0) AS attempts, tried.number AS last_number, tried.outcome AS last_outcome,
       tried.status AS last_status, tried.error AS last_error, tried.finished_at AS last_tried_at,
       done.number AS delivered_number, done.status AS delivered_status, done.finished_at AS delivered_at, done.receipt,
       before.lanes AS due_before, leased.lanes AS leased_lanes,
       -- The transactions that lock or change one of these rows now.
       array_remove(ARRAY[l.xmax::text, r.xmax::text, p.xmax::text], '0') AS transactions
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
LEFT JOIN LATERAL (
    SELECT e.sequence
    FROM holdfast.entry e
    WHERE e.subject_id = %(subject_id)s
      AND e.sequence > l.delivered_sequence AND e.sequence <= %(sequence)s AND NOT $cancelled(l, e.sequence)
      -- Prunes partitions, as the claim does.
      AND e.created_at >= l.head_created_at - interval '1 hour'
      AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
    ORDER BY e.sequence
    LIMIT 1
) head ON true
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = p.id AND d.subject_id = %(subject_id)s AND d.sequence = %(sequence)s AND d.resolution IS NULL
LEFT JOIN LATERAL (
    SELECT a.number, a.outcome::text AS outcome, a.status, a.error, a.finished_at
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
      AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour'
    ORDER BY a.number DESC, a.finished_at DESC
    LIMIT 1
) tried ON true
LEFT JOIN LATERAL (
    SELECT a.number, a.status, a.finished_at, a.receipt
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
      AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour' AND a.outcome = 'delivered'
    ORDER BY a.number, a.finished_at
    LIMIT 1
) done ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes
    FROM (
        SELECT FROM holdfast.lane o
        WHERE o.endpoint_id = p.id AND o.priority = l.priority AND o.token IS NULL AND o.due_at < least(l.due_at, now())
        LIMIT %(due_before_max)s
    ) earlier
) before
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes
    FROM holdfast.lane o
    WHERE o.endpoint_id = p.id AND o.token IS NOT NULL AND o.lease_until > now()
) leased
WHERE %(endpoint_id)s::integer IS NULL OR p.id = %(endpoint_id)s::integer
ORDER BY p.name


-- name: subject
-- A subject and its last sequence; no row for an unknown name.
-- Uses uq_subject_name.
SELECT id AS subject_id, name AS subject, last_sequence
FROM holdfast.subject
WHERE name = %(subject)s
