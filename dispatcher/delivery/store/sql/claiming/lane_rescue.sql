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
          AND (x.types = '{}' OR e.type = ANY (x.types))
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
