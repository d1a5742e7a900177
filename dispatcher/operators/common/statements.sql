-- name: action_reasons
-- The newest reason that operators gave for one of the given actions on each target.
-- Uses ix_operator_action_target.
SELECT DISTINCT ON (target) target, reason
FROM holdfast.operator_action
WHERE action = ANY (%(actions)s::text[]) AND target = ANY (%(targets)s::text[])
ORDER BY target, id DESC


-- name: audit_add
-- Records an operator's action, in the transaction of the action.
-- Needs no index.
INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)
VALUES (%(actor)s, %(action)s, %(target)s, %(reason)s, %(detail)s)


-- name: entry_key_find
-- The batch that recorded a key; no row if the key was never used.
-- Uses pk_entry_key, uq_batch_batch_no.
SELECT k.batch_no, b.stream, b.query_id, b.batch_id, b.written_at, b.routed_at
FROM holdfast.entry_key k
JOIN holdfast.batch b USING (batch_no)
WHERE k.key = %(key)s


-- name: entry_subject
-- The id of a subject; no row for an unknown name.
-- Uses uq_subject_name.
SELECT id FROM holdfast.subject WHERE name = %(subject)s


-- name: heartbeats
-- Whether the server refuses writes by its own settings, not this login's; and since when a heartbeat is one of a living
-- dispatcher: for a minute, or as of the newest where none can be written while dispatchers are connected. Their sessions are
-- known by name, which every role sees. Needs no index: a row per process.
SELECT server.read_only,
       CASE WHEN server.read_only AND server.connected THEN least(server.newest, clock_timestamp())
            ELSE clock_timestamp() END - interval '1 minute' AS alive_since
FROM (
    SELECT pg_is_in_recovery() OR EXISTS (
               SELECT FROM pg_settings
               WHERE name = 'default_transaction_read_only' AND setting = 'on'
                 AND source NOT IN ('client', 'user', 'database user', 'session')
           ) AS read_only,
           EXISTS (
               SELECT FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'holdfast-dispatcher'
           ) AS connected,
           (SELECT max(heartbeat_at) FROM holdfast.dispatcher_instance) AS newest
) server


-- name: login
-- Gives the rest of this transaction the login's rights: it may see other sessions, the role may not.
-- Needs no index.
SELECT set_config('role', 'none', true)


-- name: newest_decision
-- The newest decision of a subject by event time, with its entry if that is stored, and the transition state with which a
-- stream's decisions are compared; no row for an unknown subject. A decision counts if it is of that stream, or of another one
-- that decides the same: whose last type is equal up to its last dot.
-- Uses uq_subject_name, pk_stream, pk_transition, pk_entry of the subject.
SELECT s.last_sequence, newest.stream, coalesce(e.type, newest.last_type) AS type, newest.last_occurred_at AS occurred_at,
       e.sequence, e.key, own.last_type AS own_type, own.last_occurred_at AS own_occurred_at
FROM holdfast.subject s
LEFT JOIN holdfast.stream m ON m.name = %(stream)s
LEFT JOIN holdfast.transition own ON own.subject_id = s.id AND own.stream = coalesce(m.acts_for, m.name)
LEFT JOIN LATERAL (
    SELECT t.stream, t.last_type, t.last_occurred_at
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
      AND (t.stream = own.stream
           OR regexp_replace(t.last_type, '[.][^.]*$', '') = regexp_replace(%(type)s, '[.][^.]*$', ''))
    ORDER BY t.last_occurred_at DESC, t.updated_at DESC
    LIMIT 1
) newest ON true
LEFT JOIN LATERAL (
    SELECT type, sequence, key
    FROM holdfast.entry
    WHERE subject_id = s.id AND occurred_at = newest.last_occurred_at
    ORDER BY sequence DESC
    LIMIT 1
) e ON true
WHERE s.name = %(subject)s


-- name: now
-- The time of this database, by which `2h` and `yesterday` are meant. It reads no table.
-- Uses no index.
SELECT now() AS now


-- name: receipts_range
-- The time range of a check or comparison, which ends now at the latest by this database's clock: what
-- is not recorded yet is not missing. Reads no table.
SELECT %(since)s::timestamptz AS since, least(now(), %(until)s::timestamptz) AS until


-- name: replay_lock
-- Serialises plans of replays, so that two cannot take the same entries; held until the transaction ends.
-- Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.replay'))


-- name: replay_take
-- Locks a replay for a change of its state.
-- Uses pk_replay.
SELECT id, verb::text AS verb, state::text AS state
FROM holdfast.replay
WHERE id = %(id)s
FOR UPDATE


-- name: stream_names
-- The names of all streams.
-- Uses pk_stream.
SELECT name FROM holdfast.stream ORDER BY name


-- name: suppressed_cause
-- Why a batch suppressed the decision of a key; no row if it was written, or its partition was dropped.
-- Uses pk_suppressed of the one partition that holds the batch's moment.
SELECT cause::text AS cause
FROM holdfast.suppressed
WHERE batch_no = %(batch_no)s AND key = %(key)s AND suppressed_at = %(written_at)s


-- name: unaware
-- The living dispatchers of code from before a revision, which do not know what it added.
-- Needs no index: a row per process.
SELECT d.host || ' pid ' || d.pid AS name
FROM holdfast.dispatcher_instance d
LEFT JOIN holdfast.code_session c ON c.kind = 'dispatcher' AND c.name = d.id::text
WHERE d.heartbeat_at > clock_timestamp() - interval '1 minute' AND coalesce(c.revision, '') < %(revision)s
ORDER BY d.heartbeat_at DESC
