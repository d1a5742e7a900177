-- name: backlog
-- The backlog of each endpoint that is not disabled: due lanes (at most 10,000 per priority), the age in seconds of the one
-- that has been due longest, its breaker, and its subjects on hold. Scans ix_lane_due, one priority after the other, ix_lane_on_hold.
WITH RECURSIVE step AS (
    SELECT p.id AS endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.token IS NULL AND l.due_at IS NOT NULL
    ) AS priority
    FROM holdfast.endpoint p
    WHERE p.state <> 'disabled'
    UNION ALL
    SELECT s.endpoint_id, (
        SELECT min(l.priority) FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.token IS NULL AND l.due_at IS NOT NULL
          AND l.priority > s.priority
    )
    FROM step s
    WHERE s.priority IS NOT NULL
)
SELECT p.name, pace.breaker::text AS breaker,
       coalesce(sum(waiting.lanes), 0)::bigint AS due_lanes,
       coalesce(extract(epoch FROM now() - min(waiting.oldest)), 0)::double precision AS oldest_due_age_seconds,
       cardinality($held_at(p.id)) AS on_hold
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace pace ON pace.endpoint_id = p.id
JOIN step s ON s.endpoint_id = p.id
LEFT JOIN LATERAL (
    SELECT count(*) AS lanes, min(due.due_at) AS oldest
    FROM (
        SELECT l.due_at FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.priority = s.priority AND l.token IS NULL AND l.due_at <= now()
        ORDER BY l.due_at
        LIMIT 10000
    ) due
) waiting ON true
GROUP BY p.id, p.name, pace.breaker


-- name: dead_rows
-- Dead rows of the tables that deliveries and batches change in place, and the seconds since the last VACUUM of each by
-- autovacuum or a person; null: none since the statistics began. Uses pg_class_oid_index.
SELECT c.relname AS name, pg_stat_get_dead_tuples(c.oid) AS dead_rows,
       extract(epoch FROM now() - greatest(
           pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid)
       ))::double precision AS vacuum_age_seconds
FROM pg_class c
WHERE c.oid = ANY (ARRAY[
    'holdfast.lane'::regclass, 'holdfast.endpoint_pace'::regclass, 'holdfast.replay_item'::regclass,
    'holdfast.batch'::regclass, 'holdfast.subject'::regclass, 'holdfast.transition'::regclass
]::oid[])


-- name: doorbell_listen
-- Subscribes this session to the doorbell until it ends.
-- Needs no index.
LISTEN holdfast_doorbell


-- name: doorbell_ring
-- Notifies the doorbell with a given payload. A separate transaction, because commits with notifications wait for each
-- other. Needs no index.
SELECT pg_notify('holdfast_doorbell', %(word)s)


-- name: endpoint_held_up
-- Endpoints with pending work that get no requests now: paused, disabled, with a breaker that is not closed, or held by
-- Retry-After. Uses ix_lane_due, pk_endpoint_pace.
SELECT p.name, p.state::text AS state, p.state_reason, r.breaker::text AS breaker, r.breaker_until, r.breaker_reason,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until, r.held_by
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
WHERE (p.state IN ('paused', 'disabled') OR p.state = 'active' AND (r.breaker IN ('open', 'half_open') OR r.held_until > now()))
  AND EXISTS (SELECT FROM holdfast.lane l
               WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL)
ORDER BY p.name


-- name: endpoint_load
-- Every endpoint that is not disabled, with its receiver's key-retention window.
-- Uses pk_endpoint, pk_endpoint_pace; a handful of rows.
SELECT p.id, p.name, p.url, p.state::text AS state, p.secret_refs, p.allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.schedule_seconds, p.order_policy::text AS order_policy,
       p.envelope::text AS envelope, p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref, p.rate_per_second,
       p.budget_seconds, p.breaker_threshold, p.slow_start_seconds, p.inquiry_path,
       e.key_window_seconds, e.key_window_seen_at
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
WHERE p.state <> 'disabled'
ORDER BY p.id


-- name: instance_beat
-- Records a heartbeat of this dispatcher; returns whether a batch is unrouted, and a replay is being applied.
-- Uses pk_dispatcher_instance, ix_batch_unrouted, ix_replay_applying.
INSERT INTO holdfast.dispatcher_instance AS instance (id, host, pid, version, in_flight, draining)
VALUES (%(id)s, %(host)s, %(pid)s, %(version)s, %(in_flight)s, %(draining)s)
ON CONFLICT (id) DO UPDATE
SET heartbeat_at = now(), in_flight = excluded.in_flight, draining = excluded.draining
RETURNING clock_timestamp() AS at,
          EXISTS (SELECT FROM holdfast.batch WHERE routed_at IS NULL) AS batches,
          EXISTS (SELECT FROM holdfast.replay WHERE state = 'applying') AS replays


-- name: instance_leave
-- Deletes this dispatcher's row, and those of dispatchers whose last heartbeat is more than a day old.
-- Uses pk_dispatcher_instance; a handful of rows.
DELETE FROM holdfast.dispatcher_instance
WHERE id = %(id)s OR heartbeat_at < now() - interval '1 day'


-- name: key_window_note
-- Stores receivers' key-retention windows; null: for ever. Rows are locked in the order of their ids.
-- Uses pk_endpoint_pace.
UPDATE holdfast.endpoint_pace
SET key_window_seconds = said.seconds, key_window_seen_at = now()
FROM (
    SELECT p.endpoint_id, w.seconds
    FROM unnest(%(endpoint_ids)s::integer[], %(seconds)s::bigint[]) AS w (endpoint_id, seconds)
    JOIN holdfast.endpoint_pace p ON p.endpoint_id = w.endpoint_id
    ORDER BY p.endpoint_id
    FOR NO KEY UPDATE OF p
) said
WHERE endpoint_pace.endpoint_id = said.endpoint_id
RETURNING endpoint_pace.endpoint_id


-- name: lanes_on_hold
-- Leased lanes whose subject is on hold: what is in flight there ends, and the rest of the lease must not leave. Before revision
-- 0037 `on_hold_until` is that of `older`. Uses ix_lane_on_hold.
SELECT held.endpoint_id, held.subject_id
FROM (VALUES (NULL::timestamptz)) older (on_hold_until)
CROSS JOIN LATERAL (
    SELECT l.endpoint_id, l.subject_id FROM holdfast.lane l WHERE on_hold_until > now() AND l.token IS NOT NULL
) held


-- name: lane_waiting
-- The number of due lanes of endpoints that cannot be sent to.
-- Uses ix_lane_due.
SELECT endpoint_id, count(*) AS lanes
FROM holdfast.lane
WHERE endpoint_id = ANY (%(endpoint_ids)s::integer[]) AND token IS NULL AND due_at <= now()
GROUP BY endpoint_id


-- name: partitions_ensure
-- Creates the partitions of the coming days; safe when several processes run it at once.
-- Needs no index.
SELECT holdfast.ensure_partitions() AS created


-- name: pending
-- Whether a drain must continue: an unrouted batch, a lease to settle or rescue, a due lane or replay item of an endpoint that
-- can be sent to and whose subject is not on hold, or a replay to finish. Compares with the statement's time: a batch that was routed after this transaction began
-- made its lanes due after that, too. Uses ix_batch_unrouted, ix_lane_leased, ix_lane_due, pk_endpoint_pace, ix_replay_applying,
-- ix_replay_item_due, ix_replay_item_leased, pk_replay_item, ix_lane_on_hold.
WITH open AS (
    SELECT p.id
    FROM holdfast.endpoint p
    JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
    WHERE p.id = ANY (%(endpoint_ids)s::integer[]) AND p.state = 'active'
      AND (e.held_until IS NULL OR e.held_until <= statement_timestamp())
      AND (e.breaker NOT IN ('open', 'half_open') OR e.breaker_until <= statement_timestamp())
)
SELECT EXISTS (SELECT FROM holdfast.batch WHERE routed_at IS NULL)
    OR EXISTS (SELECT FROM holdfast.lane WHERE token IS NOT NULL)
    OR EXISTS (
        SELECT
        FROM open
        JOIN holdfast.lane l ON l.endpoint_id = open.id
        WHERE l.token IS NULL AND l.due_at <= statement_timestamp()
    )
    OR EXISTS (SELECT FROM holdfast.replay_item WHERE token IS NOT NULL)
    OR EXISTS (
        SELECT
        FROM holdfast.replay y
        WHERE y.state = 'applying' AND y.verb = 'redeliver' AND (
            EXISTS (
                SELECT
                FROM open
                JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.endpoint_id = open.id
                WHERE i.settled_at IS NULL AND i.token IS NULL AND (i.due_at IS NULL OR i.due_at <= statement_timestamp())
                  AND NOT EXISTS (
                      SELECT FROM holdfast.replay_item o
                      WHERE o.replay_id = i.replay_id AND o.endpoint_id = i.endpoint_id
                        AND o.subject_id = i.subject_id AND o.sequence < i.sequence AND o.settled_at IS NULL
                  )
                  AND i.subject_id <> ALL ($held_at(i.endpoint_id))
            )
            OR NOT EXISTS (
                SELECT FROM holdfast.replay_item i WHERE i.replay_id = y.id AND i.settled_at IS NULL AND i.token IS NULL
            )
        )
    ) AS pending


-- name: prune_day
-- Drops a day unless it has undelivered entries; the function writes the audit row. Reads the whole day by pk_lane and
-- uq_batch_batch_no; the other rows by ix_batch_unrouted and uq_dead_letter_open.
SELECT outcome, row_count, bytes, waiting, unrouted, dead_letters, abandoned, endpoints
FROM holdfast.prune_day(
    %(parent)s, %(day)s, %(days)s::integer, false, 'dispatcher', 'retention'
)


-- name: prune_days
-- Today by the database's clock (UTC), and the days of entry and attempt that are past their retention, oldest first.
-- Index: the catalogue's own.
SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today, old.parent, old.day
FROM (VALUES (1)) AS one
LEFT JOIN holdfast.days_older_than(%(days)s::integer) AS old ON true


-- name: prune_patience
-- Raises the time limits for reading a whole day; the transaction holds no lock that others wait for meanwhile.
-- Needs no index.
SELECT set_config('statement_timeout', '10min', true)


-- name: server
-- The server's own state: the oldest snapshot by its holder and the age of the server's oldest row version, in transactions;
-- size and connections. Every login may read these columns of other sessions; their times and queries only with pg_read_all_stats. A
-- VACUUM holds nothing back. Needs no index: a row per connection; the size reads the directory entries of the database's files.
WITH held AS (
    SELECT CASE
               WHEN datid IS NULL THEN 'replication'
               WHEN starts_with(application_name, 'holdfast') THEN 'holdfast'
               ELSE 'other'
           END AS holder,
           greatest(age(backend_xid), age(backend_xmin)) AS transactions
    FROM pg_stat_activity
    WHERE usesysid IS NOT NULL AND pid <> pg_backend_pid()
      AND (datid IS NULL OR datname = current_database())
      AND pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum v)
    UNION ALL
    SELECT 'replication', age(xmin) FROM pg_replication_slots
    UNION ALL
    SELECT 'prepared', age(transaction) FROM pg_prepared_xacts WHERE database = current_database()
)
SELECT (
           SELECT jsonb_object_agg(every.holder, coalesce(oldest.transactions, 0))
           FROM unnest(ARRAY['holdfast', 'other', 'prepared', 'replication']) AS every (holder)
           LEFT JOIN (SELECT holder, max(transactions) AS transactions FROM held GROUP BY 1) oldest
             ON oldest.holder = every.holder
       ) AS snapshot_ages,
       jsonb_build_object(
           'transaction', (SELECT max(age(datfrozenxid)) FROM pg_database),
           'multixact', (SELECT max(mxid_age(datminmxid)) FROM pg_database)
       ) AS frozen_ages,
       jsonb_build_object(
           'transaction', current_setting('autovacuum_freeze_max_age')::bigint,
           'multixact', current_setting('autovacuum_multixact_freeze_max_age')::bigint
       ) AS frozen_ages_max,
       CASE WHEN has_database_privilege(d.oid, 'CONNECT') THEN pg_database_size(d.oid) END AS size_bytes,
       (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL AND usesysid IS NOT NULL) AS connections,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
           - coalesce(current_setting('reserved_connections', true)::integer, 0) AS connections_max
FROM pg_database d
WHERE d.datname = current_database()
