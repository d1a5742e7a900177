-- name: dead
-- The open dead letters by endpoint and reason, of the first N of each endpoint: how many, of how many subjects, since when, the
-- newest one's detail, and the money of their entries by currency.
-- Uses uq_dead_letter_open, pk_entry.
SELECT p.name AS endpoint, d.reason, count(*) AS letters, count(DISTINCT d.subject_id) AS subjects,
       min(d.died_at) AS since, (array_agg(d.detail ORDER BY d.id DESC))[1] AS detail, bool_or(d.complete) AS complete,
       coalesce(jsonb_agg(jsonb_build_array(m.currency, m.minor)) FILTER (WHERE m.minor IS NOT NULL), '[]') AS money
FROM holdfast.endpoint p
CROSS JOIN LATERAL (
    SELECT o.id, o.subject_id, o.sequence, o.created_at, o.reason::text AS reason, o.detail, o.died_at,
           count(*) OVER () < %(scanned)s AS complete
    FROM (SELECT * FROM holdfast.dead_letter o WHERE o.endpoint_id = p.id AND o.resolution IS NULL LIMIT %(scanned)s) o
) d
LEFT JOIN holdfast.entry e ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
LEFT JOIN LATERAL (
    SELECT b.data ->> 'currency' AS currency, coalesce(b.data -> 'amount_minor', b.data -> 'exposure_minor') AS minor
    FROM (SELECT convert_from(e.body, 'UTF8')::jsonb -> 'data' AS data) b
    WHERE jsonb_typeof(coalesce(b.data -> 'amount_minor', b.data -> 'exposure_minor')) = 'number'
      AND jsonb_typeof(b.data -> 'currency') = 'string'
) m ON true
GROUP BY p.name, d.reason


-- name: oldest
-- Since when some of the other needs exist, where that is stored.
-- Uses ix_quarantine_open, uq_proposal_open; the other tables are small.
SELECT clock_timestamp() AS at,
       (SELECT max(heartbeat_at) FROM holdfast.dispatcher_instance) AS no_dispatcher,
       (SELECT min(q.quarantined_at) FROM (SELECT quarantined_at FROM holdfast.quarantine
                                            WHERE resolution IS NULL LIMIT %(scanned)s) q) AS quarantine,
       (SELECT min(created_at) FROM holdfast.replay
         WHERE state = 'planned' AND approved_by IS NULL AND counts @> '{"needs_approval": true}') AS replays_waiting,
       (SELECT min(created_at) FROM holdfast.proposal WHERE applied_at IS NULL AND cancelled_at IS NULL) AS proposals_waiting


-- name: sinks
-- Which of some names of applications have a session: a sink keeps one while it runs.
-- Needs no index.
SELECT DISTINCT application_name AS name
FROM pg_stat_activity
WHERE datname = current_database() AND application_name = ANY (%(names)s)


-- name: streams
-- The streams of jobs whose newest batch is between two ages, in seconds.
-- Uses pk_batch.
SELECT s.name, b.batch_id, b.written_at AS since
FROM holdfast.stream s
CROSS JOIN LATERAL (
    SELECT batch_id, written_at FROM holdfast.batch
    WHERE stream = s.name AND query_id = s.query_id
    ORDER BY batch_id DESC LIMIT 1
) b
WHERE s.acts_for IS NULL
  AND clock_timestamp() - b.written_at BETWEEN %(least)s * interval '1 second' AND %(most)s * interval '1 second'
ORDER BY b.written_at


-- name: waiting
-- The subjects that wait at each endpoint, of at most N lanes that are due or wait for a retry and N that are leased; since when
-- the oldest waits; and the money of the heads of the oldest lanes by currency. A stopped lane waits behind its dead letter.
-- Uses ix_lane_due, ix_lane_leased, ix_lane_on_hold, pk_entry.
SELECT p.name AS endpoint, count(DISTINCT l.subject_id) AS subjects, min(l.head_created_at) AS since,
       coalesce(jsonb_agg(jsonb_build_array(m.currency, m.minor)) FILTER (WHERE m.minor IS NOT NULL), '[]') AS money
FROM holdfast.endpoint p
CROSS JOIN LATERAL (
    SELECT w.*, row_number() OVER (ORDER BY w.head_created_at) <= %(scanned)s AS is_read
    FROM (
        (SELECT d.subject_id, d.delivered_sequence, d.last_sequence, d.head_created_at
         FROM holdfast.lane d
         WHERE d.endpoint_id = p.id AND d.due_at IS NOT NULL AND d.token IS NULL AND d.subject_id <> ALL ($held_at(p.id))
         LIMIT %(most)s)
        UNION ALL
        (SELECT d.subject_id, d.delivered_sequence, d.last_sequence, d.head_created_at
         FROM holdfast.lane d
         WHERE d.endpoint_id = p.id AND d.token IS NOT NULL
         LIMIT %(most)s)
    ) w
    WHERE w.delivered_sequence < w.last_sequence
) l
LEFT JOIN LATERAL (
    SELECT e.body
    FROM holdfast.entry e
    WHERE l.is_read AND e.subject_id = l.subject_id AND e.sequence > l.delivered_sequence
      AND e.created_at >= l.head_created_at - interval '1 hour'
    ORDER BY e.sequence
    LIMIT 1
) e ON true
LEFT JOIN LATERAL (
    SELECT b.data ->> 'currency' AS currency, coalesce(b.data -> 'amount_minor', b.data -> 'exposure_minor') AS minor
    FROM (SELECT convert_from(e.body, 'UTF8')::jsonb -> 'data' AS data) b
    WHERE jsonb_typeof(coalesce(b.data -> 'amount_minor', b.data -> 'exposure_minor')) = 'number'
      AND jsonb_typeof(b.data -> 'currency') = 'string'
) m ON true
GROUP BY p.name
