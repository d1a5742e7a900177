-- name: batch_take
-- Locks the oldest unrouted batches for this transaction; other routers skip them.
-- Uses ix_batch_unrouted.
SELECT batch_no, entry_count, written_at
FROM holdfast.batch
WHERE routed_at IS NULL
ORDER BY batch_no
LIMIT %(batches)s
FOR NO KEY UPDATE SKIP LOCKED


-- name: lane_route_hold
-- Locks the lanes of the given batches in the order of pk_lane, as `lane_hold` does for a settlement, so that the next
-- statement sees their last versions. Uses ix_entry_batch_no, pk_lane.
SELECT count(*) AS lanes
FROM (
    SELECT p.id AS endpoint_id, e.subject_id
    FROM holdfast.entry e
    JOIN holdfast.endpoint p
      ON (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    WHERE e.batch_no = ANY (%(batch_nos)s::bigint[])
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
    GROUP BY p.id, e.subject_id
    ORDER BY p.id, e.subject_id
) given
CROSS JOIN LATERAL (
    -- Backwards: the newest version comes first.
    SELECT
    FROM holdfast.lane
    WHERE lane.endpoint_id = given.endpoint_id
      AND lane.subject_id BETWEEN given.subject_id AND given.subject_id
    ORDER BY lane.subject_id DESC, lane.turn DESC
    LIMIT 1
    FOR NO KEY UPDATE
) lane


-- name: plan_mode
-- Sets whether the next statements of this transaction use custom or generic plans. A generic plan of routing may scan all keys
-- of the batches' days. Needs no index.
SELECT pg_catalog.set_config('plan_cache_mode', %(plans)s, true)


-- name: route_lock_shared
-- Blocks adding endpoints while this transaction routes; routers share the lock. A separate statement, so that the snapshots of
-- the next ones see every endpoint added before. Needs no index.
SELECT pg_advisory_xact_lock_shared(hashtext('holdfast.route'))


-- name: route_lock_try
-- As `route_lock_shared`, for a transaction that must not wait: not at all for an endpoint being added, and only briefly for
-- a lane that is locked. Also returns the number of endpoints that may get an entry. Needs no index.
SELECT set_config('lock_timeout', '100ms', true) AS patience,
       pg_try_advisory_xact_lock_shared(hashtext('holdfast.route')) AS free,
       (SELECT count(*) FROM holdfast.endpoint) AS endpoints


-- name: route_patience
-- Raises the time limits for routing a large batch. Its COMMIT does not wait for the disk: a crash only undoes routing, which is
-- repeated, and the claim, which follows it in the WAL, waits for both. Needs no index.
SELECT set_config('statement_timeout', '10min', true), set_config('synchronous_commit', 'off', true)
