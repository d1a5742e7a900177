-- Locks due lanes, and passes them to lane_claim.sql in the same transaction, with the time range of their entries. They are passed
-- in settings, so that both statements go to the server in one message: `holdfast.lanes` has the row versions by endpoint,
-- `holdfast.written_from` and `holdfast.written_to` the range of entry.created_at. A scan range is a part of ix_lane_due with one
-- priority. It contains no leased lanes and no lanes whose retry is not due yet, so these cost nothing. `free` skips endpoints with
-- a limit (those that `pace_take` locks). Uses ix_lane_due, pk_endpoint, pk_endpoint_pace.
WITH due AS MATERIALIZED (
    SELECT w.endpoint_id, w.entries, locked.*
    FROM unnest(%(endpoint_ids)s::integer[], %(lanes)s::integer[], %(entries)s::integer[])
             AS w (endpoint_id, lanes, entries)
    JOIN holdfast.endpoint p ON p.id = w.endpoint_id AND p.state = 'active'
    JOIN holdfast.endpoint_pace r ON r.endpoint_id = w.endpoint_id
     AND (NOT %(free)s OR p.rate_per_second IS NULL AND r.breaker = 'closed'
                          AND coalesce(r.held_until <= now(), true))
    CROSS JOIN LATERAL (
        SELECT array_agg(l.version) AS versions, min(l.head_created_at) AS oldest, max(l.head_created_at) AS newest
        FROM (
            SELECT found.*
            FROM unnest(%(range_endpoint_ids)s::integer[], %(range_priorities)s::smallint[],
                        %(range_from)s::timestamptz[], %(range_to)s::timestamptz[])
                     AS scan (endpoint_id, priority, due_from, due_to)
            CROSS JOIN LATERAL (
                SELECT lane.ctid AS version, lane.head_created_at
                FROM holdfast.lane
                WHERE lane.endpoint_id = scan.endpoint_id AND lane.priority = scan.priority
                  AND lane.token IS NULL AND lane.due_at >= scan.due_from
                  AND lane.due_at < scan.due_to AND lane.due_at <= now()
                ORDER BY lane.due_at
                LIMIT w.lanes
                FOR NO KEY UPDATE SKIP LOCKED
            ) found
            WHERE scan.endpoint_id = w.endpoint_id
            -- Rows are produced range by range, and no further rows are locked.
            LIMIT w.lanes
        ) l
    ) locked
    WHERE locked.versions IS NOT NULL
)
SELECT length(set_config('holdfast.lanes', coalesce(json_agg(
           json_build_object('endpoint_id', endpoint_id, 'entries', entries, 'versions', versions)), '[]')::text, true)),
       -- Within a subject created_at never decreases, so the last head is a lower bound of the next one. After the database's
       -- clock was set back, heads may be in the future. As seconds, because a timestamp takes longer to parse.
       length(set_config('holdfast.written_from',
                         coalesce(extract(epoch FROM min(oldest) - interval '1 hour')::text, 'infinity'), true)),
       length(set_config('holdfast.written_to',
                         coalesce(extract(epoch FROM greatest(now(), max(newest)) + interval '1 hour')::text, '-infinity'), true))
FROM due
