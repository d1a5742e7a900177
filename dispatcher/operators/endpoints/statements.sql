-- name: add
-- Adds an endpoint; without from_beginning it starts with batches that commit from now on: the trigger endpoint_start records
-- the existing ones, in a snapshot of its own. Unique by uq_endpoint_name; reads uq_batch_batch_no.
INSERT INTO holdfast.endpoint (
    name, url, types, secret_refs, allow_cidrs, headers, envelope, ca_ref, client_cert_ref, client_key_ref,
    connect_timeout_ms, total_timeout_ms, concurrency, rate_per_second, schedule_seconds, budget_seconds,
    breaker_threshold, slow_start_seconds, order_policy, inquiry_path, starts_at
)
VALUES (
    %(name)s, %(url)s, %(types)s, %(secret_refs)s, %(allow_cidrs)s::cidr[], %(headers)s,
    %(envelope)s::holdfast.envelope_style, %(ca_ref)s, %(client_cert_ref)s, %(client_key_ref)s,
    %(connect_timeout_ms)s, %(total_timeout_ms)s, %(concurrency)s, %(rate_per_second)s, %(schedule_seconds)s,
    %(budget_seconds)s, %(breaker_threshold)s, %(slow_start_seconds)s, %(order_policy)s::holdfast.order_policy,
    %(inquiry_path)s,
    CASE WHEN %(from_beginning)s THEN NULL ELSE clock_timestamp() END
)
RETURNING id, name, url, state, order_policy, starts_at


-- name: backfill
-- Advances the existing lanes of an endpoint (`backfill_add` committed them) to the last stored entry. Lanes that are behind
-- are locked in the order of pk_lane, as everywhere, and only after all reads. Uses pk_lane; reads all partitions of entry.
WITH stored AS MATERIALIZED (
    SELECT e.subject_id, max(e.sequence) AS last_sequence, min(e.priority) AS priority
    FROM holdfast.endpoint p
    JOIN holdfast.entry e
      ON (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    WHERE p.id = %(endpoint_id)s
    GROUP BY e.subject_id
),
behind AS MATERIALIZED (
    SELECT lane.endpoint_id, stored.*
    FROM stored
    JOIN holdfast.lane ON lane.endpoint_id = %(endpoint_id)s AND lane.subject_id = stored.subject_id
    WHERE lane.last_sequence < stored.last_sequence
    ORDER BY lane.subject_id
    FOR NO KEY UPDATE OF lane
)
UPDATE holdfast.lane
SET last_sequence = behind.last_sequence,
    priority = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN behind.priority
                    ELSE least(lane.priority, behind.priority) END,
    due_at = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN clock_timestamp()
                  ELSE lane.due_at END
FROM behind
WHERE lane.endpoint_id = behind.endpoint_id AND lane.subject_id = behind.subject_id
  AND lane.last_sequence < behind.last_sequence


-- name: backfill_add
-- Creates the missing lanes of an endpoint for the stored entries that it takes; runs after the endpoint is committed, so that
-- routing covers every later batch. Uses pk_lane_key; reads all partitions of entry.
INSERT INTO holdfast.lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT m.*
FROM (
    SELECT p.id AS endpoint_id, e.subject_id, min(e.sequence) - 1, max(e.sequence), min(e.priority), clock_timestamp(),
           min(e.created_at)
    FROM holdfast.endpoint p
    JOIN holdfast.entry e
      ON (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    WHERE p.id = %(endpoint_id)s
    GROUP BY p.id, e.subject_id
) m
WHERE NOT EXISTS (
    SELECT FROM holdfast.lane_key k WHERE k.endpoint_id = m.endpoint_id AND k.subject_id = m.subject_id
)
ORDER BY m.subject_id


-- name: hold
-- Locks every lane of an endpoint in the order of pk_lane, so that none changes after the next statement reads it.
-- Uses pk_lane.
SELECT count(*) AS lanes
FROM (
    SELECT FROM holdfast.lane
    WHERE endpoint_id = %(endpoint_id)s
    ORDER BY subject_id
    FOR NO KEY UPDATE
) held


-- name: id
-- The id of an endpoint; no row for an unknown name.
-- Uses uq_endpoint_name.
SELECT id FROM holdfast.endpoint WHERE name = %(endpoint)s


-- name: known
-- The types of stored entries, by the statistics of their days and by 100 entries of each of the newest 10 batches, and the streams
-- of jobs. No index has the types, so it reads no more. Uses the catalogue's own indexes, ix_entry_batch_no.
SELECT ARRAY(
           SELECT DISTINCT value FROM pg_catalog.pg_stats
           CROSS JOIN LATERAL unnest(most_common_vals::text::text[]) value
           WHERE schemaname = 'holdfast' AND tablename ~ '^entry_[0-9]{8}$' AND attname = 'type'
           UNION
           SELECT newest.type
           FROM (SELECT batch_no, written_at FROM holdfast.batch WHERE entry_count > 0 ORDER BY batch_no DESC LIMIT 10) b
           CROSS JOIN LATERAL (
               SELECT e.type FROM holdfast.entry e
               WHERE e.batch_no = b.batch_no AND e.created_at = b.written_at LIMIT 100
           ) newest
       ) AS types,
       ARRAY(SELECT name FROM holdfast.stream WHERE acts_for IS NULL ORDER BY name) AS streams


-- name: leased
-- The number of leased lanes of an endpoint.
-- Uses ix_lane_leased.
SELECT count(*) AS lanes FROM holdfast.lane WHERE endpoint_id = %(endpoint_id)s AND token IS NOT NULL


-- name: list
-- Every endpoint with its backlog: waiting lanes, leased lanes, open dead letters, each counted up to a limit.
-- Uses ix_lane_due, ix_lane_leased and uq_dead_letter_open.
WITH leased AS (
    SELECT l.endpoint_id, count(*) AS lanes FROM holdfast.lane l WHERE l.token IS NOT NULL GROUP BY l.endpoint_id
)
SELECT p.name, p.url, p.state, p.state_reason, p.order_policy, p.types, $streams(p.id) AS streams, p.secret_refs,
       p.starts_at,
       (SELECT count(*)
          FROM (SELECT FROM holdfast.lane l
                 WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL LIMIT %(most)s) due
       ) AS waiting_lanes,
       coalesce(leased.lanes, 0) AS leased_lanes,
       (SELECT count(*)
          FROM (SELECT FROM holdfast.dead_letter d
                 WHERE d.endpoint_id = p.id AND d.resolution IS NULL LIMIT %(most)s) open
       ) AS dead_letters
FROM holdfast.endpoint p
LEFT JOIN leased ON leased.endpoint_id = p.id
ORDER BY p.name


-- name: names
-- The names of all endpoints.
-- Uses uq_endpoint_name, or reads the table: a handful of rows.
SELECT name FROM holdfast.endpoint ORDER BY name


-- name: outbound
-- What requests to endpoints are made from: of the one with this name in any state, or of all that are not disabled.
-- Uses uq_endpoint_name, or reads the table: a handful of rows.
SELECT p.id, p.name, p.url, p.state::text AS state, p.secret_refs, p.allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.schedule_seconds, p.order_policy::text AS order_policy,
       p.envelope::text AS envelope, p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref, p.rate_per_second,
       p.budget_seconds, p.breaker_threshold, p.slow_start_seconds, p.inquiry_path
FROM holdfast.endpoint p
WHERE p.name = %(name)s OR %(name)s::text IS NULL AND p.state <> 'disabled'
ORDER BY p.name


-- name: keep_streams
-- Lets no stream get another name until COMMIT, in which the endpoint's choice would be missed; not `kept` while one gets it.
-- Never waits, because the rename may wait for the endpoint. Needs no index.
SELECT pg_try_advisory_xact_lock_shared(hashtext('holdfast.stream_names')) AS kept


-- name: renamed_streams
-- Which of some names streams had before, and the names that they have. As JSON, because before revision 0036 there is no such
-- column. Reads all of stream, a small table.
SELECT f.name AS former, s.name
FROM holdfast.stream s
CROSS JOIN LATERAL jsonb_array_elements_text(to_jsonb(s) -> 'former_names') f (name)
WHERE f.name = ANY (%(streams)s::text[])
ORDER BY f.name


-- name: set_streams
-- Sets the streams that an endpoint takes; a statement of its own, because the column is newer than the others.
-- Uses pk_endpoint.
UPDATE holdfast.endpoint SET streams = %(streams)s WHERE id = %(id)s


-- name: retype_add
-- Before an endpoint takes more types or streams: gives every subject without a lane one at the last routed entry, so that they
-- apply from now on. Routing is excluded. Uses pk_lane_key, ix_batch_unrouted, ix_entry_batch_no; reads every subject.
INSERT INTO holdfast.lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT %(endpoint_id)s, s.id, place.sequence, place.sequence, 0, NULL,
       coalesce(u.created_at, s.last_created_at, now())
FROM holdfast.subject s
LEFT JOIN (
    SELECT e.subject_id, min(e.sequence) AS sequence, min(e.created_at) AS created_at
    FROM holdfast.batch b
    JOIN holdfast.entry e ON e.batch_no = b.batch_no AND e.created_at = b.written_at
    WHERE b.routed_at IS NULL
    GROUP BY e.subject_id
) u ON u.subject_id = s.id
CROSS JOIN LATERAL (SELECT coalesce(u.sequence - 1, s.last_sequence) AS sequence) place
WHERE place.sequence > 0
  AND NOT EXISTS (SELECT FROM holdfast.lane_key k WHERE k.endpoint_id = %(endpoint_id)s AND k.subject_id = s.id)
ORDER BY s.id


-- name: retype_rest
-- Before an endpoint takes more types or streams: its idle lanes move past everything routed, and waiting lanes extend up to there. The
-- lanes are locked (`hold`). Uses pk_lane, ix_batch_unrouted, ix_entry_batch_no; reads every subject.
UPDATE holdfast.lane
SET delivered_sequence = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN routed.sequence
                              ELSE lane.delivered_sequence END,
    last_sequence = routed.sequence
FROM (
    SELECT s.id AS subject_id, place.sequence
    FROM holdfast.subject s
    LEFT JOIN (
        SELECT e.subject_id, min(e.sequence) AS sequence, min(e.created_at) AS created_at
        FROM holdfast.batch b
        JOIN holdfast.entry e ON e.batch_no = b.batch_no AND e.created_at = b.written_at
        WHERE b.routed_at IS NULL
        GROUP BY e.subject_id
    ) u ON u.subject_id = s.id
    CROSS JOIN LATERAL (SELECT coalesce(u.sequence - 1, s.last_sequence) AS sequence) place
    WHERE place.sequence > 0
) routed
WHERE lane.endpoint_id = %(endpoint_id)s AND lane.subject_id = routed.subject_id AND lane.last_sequence < routed.sequence


-- name: retype_waiting
-- Before an endpoint's types or streams change: lanes move past entries before their head that were never taken, so that the
-- new ones do not select them, and reset the attempts of a head that is no longer taken. Such a dead letter holds no lane: the
-- lane moves past it, as nothing else would release it. Uses pk_lane, pk_entry, uq_dead_letter_open.
UPDATE holdfast.lane
SET delivered_sequence = f.delivered_sequence,
    due_at = CASE WHEN f.delivered_sequence < lane.last_sequence AND NOT f.held THEN coalesce(lane.due_at, now()) END,
    attempt = CASE WHEN f.wanted THEN lane.attempt ELSE 0 END,
    rescued = CASE WHEN f.wanted THEN lane.rescued ELSE 0 END,
    tried_since_us = CASE WHEN f.wanted THEN lane.tried_since_us END
FROM (
    SELECT l.subject_id, l.delivered_sequence AS before,
           CASE -- A person decides about a dead letter whose type is taken, or of which nothing is stored.
                WHEN d.sequence < h.sequence OR h.sequence IS NULL THEN coalesce(d.sequence - 1, p.delivered_sequence)
                WHEN d.sequence = h.sequence AND NOT w.wanted THEN d.sequence
                ELSE p.delivered_sequence END AS delivered_sequence,
           d.sequence IS NOT NULL AND (d.sequence IS DISTINCT FROM h.sequence OR w.wanted) AS held,
           w.wanted
    FROM holdfast.lane l
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.type, e.batch_no
        FROM holdfast.entry e
        WHERE e.subject_id = l.subject_id
          AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
          AND e.created_at >= l.head_created_at - interval '1 hour'
          AND (%(before)s::text[] = '{}' OR e.type = ANY (%(before)s::text[]))
          AND (%(streams_before)s::text[] = '{}' OR $stream_of(e.batch_no) = ANY (%(streams_before)s::text[]))
        ORDER BY e.sequence
        LIMIT 1
    ) h ON true
    LEFT JOIN LATERAL (
        SELECT o.sequence
        FROM holdfast.dead_letter o
        WHERE l.due_at IS NULL AND o.endpoint_id = l.endpoint_id AND o.subject_id = l.subject_id
          AND o.sequence > l.delivered_sequence AND o.resolution IS NULL
        ORDER BY o.sequence
        LIMIT 1
    ) d ON true
    CROSS JOIN LATERAL (
        SELECT coalesce((%(after)s::text[] = '{}' OR h.type = ANY (%(after)s::text[]))
           AND (%(streams_after)s::text[] = '{}' OR $stream_of(h.batch_no) = ANY (%(streams_after)s::text[])), false) AS wanted
    ) w
    CROSS JOIN LATERAL (
        -- With every type of every stream taken, the next sequence is the head; a missing one stays visible.
        SELECT CASE WHEN %(before)s::text[] = '{}' AND %(streams_before)s::text[] = '{}' THEN l.delivered_sequence
                    ELSE coalesce(h.sequence - 1, l.last_sequence) END AS delivered_sequence
    ) p
    WHERE l.endpoint_id = %(endpoint_id)s AND l.delivered_sequence < l.last_sequence
) f
WHERE lane.endpoint_id = %(endpoint_id)s AND lane.subject_id = f.subject_id AND lane.token IS NULL
  -- A dead letter dismissed meanwhile has moved the lane.
  AND lane.delivered_sequence = f.before


-- name: route_lock
-- Excludes routing for this transaction, after running ones end: later routing sees the endpoint that this transaction adds.
-- A statement of its own, before the clock is read. Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.route'))


-- name: set
-- Sets every setting of an endpoint except its state.
-- Uses pk_endpoint.
UPDATE holdfast.endpoint
SET url = %(url)s, types = %(types)s, secret_refs = %(secret_refs)s, allow_cidrs = %(allow_cidrs)s::cidr[],
    headers = %(headers)s, envelope = %(envelope)s::holdfast.envelope_style, ca_ref = %(ca_ref)s,
    client_cert_ref = %(client_cert_ref)s, client_key_ref = %(client_key_ref)s,
    connect_timeout_ms = %(connect_timeout_ms)s, total_timeout_ms = %(total_timeout_ms)s,
    concurrency = %(concurrency)s, rate_per_second = %(rate_per_second)s, schedule_seconds = %(schedule_seconds)s,
    budget_seconds = %(budget_seconds)s, breaker_threshold = %(breaker_threshold)s,
    slow_start_seconds = %(slow_start_seconds)s, order_policy = %(order_policy)s::holdfast.order_policy,
    inquiry_path = %(inquiry_path)s, updated_at = now()
WHERE id = %(id)s


-- name: set_state
-- Pauses, resumes or disables an endpoint; its lanes keep their position.
-- Uses uq_endpoint_name.
UPDATE holdfast.endpoint
SET state = %(state)s::holdfast.endpoint_state, state_reason = %(why)s, updated_at = now()
WHERE name = %(name)s
RETURNING name, state, state_reason


-- name: show
-- Everything about one endpoint: settings, pace and backlog; each count has a limit.
-- Uses uq_endpoint_name, pk_endpoint_pace, ix_lane_due, ix_lane_leased, uq_dead_letter_open and pk_lane.
SELECT p.id, p.name, p.url, p.state, p.state_reason, p.types, $streams(p.id) AS streams, p.starts_at, p.envelope, p.headers, p.secret_refs,
       p.ca_ref, p.client_cert_ref, p.client_key_ref, p.allow_cidrs::text[] AS allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.rate_per_second, p.schedule_seconds, p.budget_seconds,
       p.order_policy, p.breaker_threshold, p.slow_start_seconds, p.inquiry_path,
       e.key_window_seconds, e.key_window_seen_at,
       e.breaker, e.breaker_since, e.breaker_until, e.breaker_reason, e.failures,
       CASE WHEN e.held_until > now() THEN e.held_until END AS held_until,
       p.created_at, p.updated_at,
       (SELECT count(*)
          FROM (SELECT FROM holdfast.lane l
                 WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL LIMIT %(most)s) due
       ) AS waiting_lanes,
       (SELECT count(*) FROM holdfast.lane l WHERE l.endpoint_id = p.id AND l.token IS NOT NULL) AS leased_lanes,
       dead.lanes AS stopped_lanes, dead.letters AS dead_letters
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
CROSS JOIN LATERAL (
    SELECT count(*) AS letters, count(DISTINCT l.subject_id) AS lanes
    FROM (
        SELECT d.endpoint_id, d.subject_id
        FROM holdfast.dead_letter d
        WHERE d.endpoint_id = p.id AND d.resolution IS NULL
        ORDER BY d.endpoint_id, d.subject_id
        LIMIT %(most)s
    ) d
    -- Every stopped lane has an open dead letter.
    LEFT JOIN LATERAL (
        SELECT l.subject_id
        FROM holdfast.lane l
        WHERE l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
          AND l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < l.last_sequence
        LIMIT 1
    ) l ON true
) dead
WHERE p.name = %(name)s


-- name: take
-- Locks an endpoint and returns its settings. The lock does not block new lanes that refer to it.
-- Uses uq_endpoint_name.
SELECT id, state::text AS state, url, types, $streams(endpoint.id) AS streams, secret_refs,
       allow_cidrs::text[] AS allow_cidrs, headers, envelope::text AS envelope, ca_ref, client_cert_ref, client_key_ref, connect_timeout_ms, total_timeout_ms,
       concurrency, rate_per_second, schedule_seconds, budget_seconds, breaker_threshold, slow_start_seconds,
       order_policy::text AS order_policy, inquiry_path
FROM holdfast.endpoint
WHERE name = %(name)s
FOR NO KEY UPDATE
