-- name: lane_empty
-- Decides about lanes whose next entry a claim did not find, unless they changed since. Searches every day, which is rarely needed.
-- If the entry is stored on a day that the claim did not search, the lane gets the entry's date and is due again. If none is stored
-- and the endpoint takes only some types or streams, the lane becomes idle. Otherwise the entry is missing (gap), and the lane waits.
-- Uses pk_lane, pk_entry.
UPDATE holdfast.lane
SET delivered_sequence = CASE WHEN f.idle THEN lane.last_sequence ELSE lane.delivered_sequence END,
    attempt = CASE WHEN f.idle THEN 0 ELSE lane.attempt END,
    rescued = CASE WHEN f.idle THEN 0 ELSE lane.rescued END,
    tried_since_us = CASE WHEN f.idle THEN NULL ELSE lane.tried_since_us END,
    due_at = CASE WHEN f.gap THEN now() + interval '60 seconds' WHEN NOT f.idle THEN now() END,
    head_created_at = CASE WHEN f.gap OR f.idle THEN lane.head_created_at ELSE f.created_at END
FROM (
    SELECT lanes.*, n.sequence, n.created_at,
           p.types = '{}' AND NOT $chooses(p.id) AND n.sequence IS DISTINCT FROM lanes.delivered_sequence + 1 AS gap,
           (p.types <> '{}' OR $chooses(p.id)) AND n.sequence IS NULL AS idle
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(delivered)s::bigint[], %(last)s::bigint[])
             AS lanes (endpoint_id, subject_id, delivered_sequence, last_sequence)
    JOIN holdfast.endpoint p ON p.id = lanes.endpoint_id
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.created_at
        FROM holdfast.entry e
        WHERE e.subject_id = lanes.subject_id
          AND e.sequence > lanes.delivered_sequence AND e.sequence <= lanes.last_sequence
          AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
        ORDER BY e.sequence
        LIMIT 1
    ) n ON true
) f
WHERE lane.endpoint_id = f.endpoint_id AND lane.subject_id = f.subject_id
  AND lane.delivered_sequence = f.delivered_sequence AND lane.last_sequence = f.last_sequence
  AND lane.token IS NULL
RETURNING lane.endpoint_id, lane.subject_id, f.delivered_sequence, f.sequence AS found, f.gap, f.idle


-- name: lane_expired
-- Whether a lease ended since a given time, and the current time.
-- Uses ix_lane_leased; the lower bound skips index entries of leases that ended long ago.
SELECT now() AS at, EXISTS (
    SELECT FROM holdfast.lane
    WHERE token IS NOT NULL AND lease_until >= %(since)s AND lease_until < now()
) AS expired


-- name: lane_priorities
-- The priorities of each endpoint's waiting lanes. Skips from one priority to the next without scanning its lanes.
-- Uses ix_lane_due.
WITH RECURSIVE step AS (
    SELECT w.endpoint_id, (
        SELECT l.priority FROM holdfast.lane l
        WHERE l.endpoint_id = w.endpoint_id AND l.due_at IS NOT NULL AND l.token IS NULL
        ORDER BY l.priority LIMIT 1
    ) AS priority
    FROM unnest(%(endpoint_ids)s::integer[]) AS w (endpoint_id)
    UNION ALL
    SELECT s.endpoint_id, (
        SELECT l.priority FROM holdfast.lane l
        WHERE l.endpoint_id = s.endpoint_id AND l.priority > s.priority
          AND l.due_at IS NOT NULL AND l.token IS NULL
        ORDER BY l.priority LIMIT 1
    )
    FROM step s
    WHERE s.priority IS NOT NULL
)
SELECT endpoint_id, priority
FROM step
WHERE priority IS NOT NULL


-- name: lane_rescue
-- Ends expired leases: records every entry that may have been sent under them as `unknown` and makes the lanes due again.
-- Uses ix_lane_leased, pk_lane, pk_entry, pk_attempt; skips lanes that are being settled.
WITH expired AS MATERIALIZED (
    SELECT l.*, p.types
    FROM holdfast.lane l
    JOIN holdfast.endpoint p ON p.id = l.endpoint_id
    WHERE l.token IS NOT NULL AND l.lease_until >= %(since)s AND l.lease_until < now()
    ORDER BY l.lease_until
    LIMIT %(lanes)s
    FOR NO KEY UPDATE OF l SKIP LOCKED
),
recorded AS (
    INSERT INTO holdfast.attempt (
        endpoint_id, subject_id, sequence, number, finished_at, token, outcome, error, retry_at
    )
    SELECT x.endpoint_id, x.subject_id, n.sequence,
           CASE WHEN n.place = 1 THEN x.attempt
                ELSE 1 + coalesce((
                    SELECT max(a.number)
                    FROM holdfast.attempt a
                    WHERE a.endpoint_id = x.endpoint_id AND a.subject_id = x.subject_id
                      AND a.sequence = n.sequence
                      AND a.finished_at >= CASE WHEN n.created_at > now() THEN '-infinity'
                                                ELSE n.created_at - interval '1 hour' END
                ), 0)
           END,
           now(), x.token, 'unknown', 'the lease ran out', now()
    FROM expired x
    CROSS JOIN LATERAL (
        SELECT e.sequence, e.created_at, row_number() OVER (ORDER BY e.sequence) AS place
        FROM holdfast.entry e
        WHERE e.subject_id = x.subject_id
          AND e.sequence > x.delivered_sequence AND e.sequence <= x.claimed_sequence
          AND e.created_at >= x.head_created_at - interval '1 hour'
          AND (x.types = '{}' OR e.type = ANY (x.types)) AND $takes_stream(x.endpoint_id, e.batch_no)
    ) n
    RETURNING endpoint_id, subject_id, sequence, number
),
freed AS (
    UPDATE holdfast.lane
    SET token = NULL, lease_until = NULL, due_at = now(), rescued = x.rescued + 1
    FROM expired x
    WHERE lane.endpoint_id = x.endpoint_id AND lane.subject_id = x.subject_id
)
SELECT endpoint_id, subject_id, sequence, number
FROM recorded
ORDER BY endpoint_id, subject_id, sequence


-- name: pace_take
-- Locks the paces of endpoints for this transaction, in the order of their ids: of all given endpoints, or only of those with
-- a limit (a rate, a breaker that is not closed, a hold), so that claims of the others do not wait. Uses pk_endpoint_pace,
-- pk_endpoint.
SELECT e.endpoint_id, e.breaker::text AS breaker, e.breaker_since, e.breaker_until, e.breaker_reason, e.failures,
       e.openings, e.probe, e.paid_until, e.held_until, e.held_by, e.paused, e.stalled_us, e.stalled_since,
       e.stalled_until, p.rate_per_second, p.breaker_threshold, p.slow_start_seconds,
       p.total_timeout_ms, p.inquiry_path,
       now() AS at
FROM holdfast.endpoint_pace e
JOIN holdfast.endpoint p ON p.id = e.endpoint_id
WHERE e.endpoint_id = ANY (%(endpoint_ids)s::integer[])
  AND (%(free_too)s OR p.rate_per_second IS NOT NULL OR e.breaker <> 'closed' OR e.held_until > now())
ORDER BY e.endpoint_id
FOR NO KEY UPDATE OF e


-- name: pace_write
-- Stores an endpoint's pace, in the transaction that holds its lock.
-- Uses pk_endpoint_pace; no index covers the changed columns, so the update is HOT.
UPDATE holdfast.endpoint_pace
SET breaker = %(breaker)s::holdfast.breaker_state,
    breaker_since = %(breaker_since)s,
    breaker_until = %(breaker_until)s,
    breaker_reason = %(breaker_reason)s,
    failures = %(failures)s,
    openings = %(openings)s,
    probe = %(probe)s,
    paid_until = %(paid_until)s,
    held_until = %(held_until)s,
    held_by = %(held_by)s,
    stalled_us = %(stalled_us)s,
    stalled_since = %(stalled_since)s,
    stalled_until = %(stalled_until)s
WHERE endpoint_id = %(endpoint_id)s
