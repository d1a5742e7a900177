-- name: days_ahead
-- For how many days after today every partitioned table has a partition, without a gap: 0 is only today, -1 not even
-- today. Index: the catalogue's own.
SELECT min(ahead.day) - 1 AS days
FROM unnest(ARRAY['attempt', 'entry', 'suppressed']) AS parent
CROSS JOIN generate_series(0, 400) AS ahead (day)
WHERE to_regclass(
    'holdfast.' || parent || '_' || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + ahead.day, 'YYYYMMDD')
) IS NULL


-- name: doorbell_changed
-- Tells every dispatcher, with the COMMIT, that something else than a batch has changed. Needs no index.
SELECT pg_notify('holdfast_doorbell', 'changed')


-- name: schema_installed
-- Whether the schema exists. Reads the catalogue, because to_regclass fails for a schema on which the user has no right
-- before it sets its role. Index: pg_class_relname_nsp.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = 'holdfast' AND c.relname = 'alembic_version'
) AS installed


-- name: undelivered
-- The oldest undelivered entry of each endpoint that is not disabled, in whatever state its lane is: due, leased, waiting for a
-- retry, or stopped behind a dead letter; but not waiting because an operator holds its subject. `late` counts the lanes whose head
-- is older than the given seconds. With a limit, that many lanes of each state and endpoint are read; without one, all. Entries of a
-- batch that is not routed have no lane: only `age_seconds` includes them. Reads the lanes that wait, not the idle ones: ix_lane_due,
-- ix_lane_on_hold, ix_lane_leased, uq_dead_letter_open with pk_lane, ix_batch_unrouted; where most lanes wait, the planner may read the whole table once for an endpoint.
SELECT p.id AS endpoint_id, p.name AS endpoint, oldest.subject_id, oldest.delivered_sequence, oldest.head_created_at,
       coalesce(oldest.late, 0) AS late,
       coalesce(extract(epoch FROM now() - least(oldest.head_created_at, unrouted.written_at)), 0)::double precision AS age_seconds
FROM holdfast.endpoint p
CROSS JOIN (
    SELECT min(b.written_at) AS written_at FROM holdfast.batch b WHERE b.routed_at IS NULL AND b.entry_count > 0
) unrouted
LEFT JOIN LATERAL (
    SELECT l.*, count(*) FILTER (WHERE l.head_created_at < now() - %(late_seconds)s * interval '1 second') OVER () AS late
    FROM (
        (SELECT w.subject_id, w.delivered_sequence, w.last_sequence, w.head_created_at
         FROM holdfast.lane w
         WHERE w.endpoint_id = p.id AND w.due_at IS NOT NULL AND w.token IS NULL
           AND w.subject_id <> ALL ($held_at(p.id))
         LIMIT %(most)s)
        UNION ALL
        (SELECT w.subject_id, w.delivered_sequence, w.last_sequence, w.head_created_at
         FROM holdfast.lane w
         WHERE w.endpoint_id = p.id AND w.token IS NOT NULL
         LIMIT %(most)s)
        UNION ALL
        SELECT w.subject_id, w.delivered_sequence, w.last_sequence, w.head_created_at
        FROM (
            SELECT DISTINCT d.subject_id
            FROM (SELECT o.subject_id FROM holdfast.dead_letter o
                   WHERE o.endpoint_id = p.id AND o.resolution IS NULL LIMIT %(most)s) d
        ) d
        JOIN holdfast.lane w ON w.endpoint_id = p.id AND w.subject_id = d.subject_id AND w.due_at IS NULL AND w.token IS NULL
    ) l
    WHERE l.delivered_sequence < l.last_sequence
    ORDER BY l.head_created_at
    LIMIT 1
) oldest ON true
WHERE p.state <> 'disabled'
