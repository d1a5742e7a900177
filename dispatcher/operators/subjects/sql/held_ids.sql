-- The subjects with lanes that wait for one reason, or any; scans at most N lanes of a kind for each endpoint, and `complete`
-- says whether those are all. Uses ix_lane_due of each endpoint, ix_lane_leased, uq_dead_letter_open, pk_lane.
WITH due AS MATERIALIZED (
    SELECT l.subject_id, l.attempt
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        SELECT l.subject_id, l.attempt
        FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
        ORDER BY l.priority, l.due_at
        LIMIT CASE WHEN %(held)s::text = 'stopped' THEN 0 ELSE %(most)s END
    ) l
),
leased AS MATERIALIZED (
    SELECT l.subject_id
    FROM holdfast.lane l
    WHERE l.token IS NOT NULL
    ORDER BY l.lease_until
    LIMIT CASE WHEN %(held)s::text IN ('stopped', 'retrying') THEN 0 ELSE %(most)s END
),
dead AS MATERIALIZED (
    SELECT d.endpoint_id, d.subject_id
    FROM holdfast.dead_letter d
    WHERE d.resolution IS NULL
    ORDER BY d.endpoint_id, d.subject_id
    LIMIT CASE WHEN %(held)s::text IN ('retrying', 'behind') THEN 0 ELSE %(most)s END
),
held AS (
    SELECT subject_id FROM due
    WHERE %(held)s::text = 'any' OR (attempt > 0) = (%(held)s::text = 'retrying')
    UNION
    SELECT subject_id FROM leased
    UNION
    SELECT dead.subject_id
    FROM dead
    -- Every stopped lane has an open dead letter.
    JOIN LATERAL (
        SELECT FROM holdfast.lane l
        WHERE l.endpoint_id = dead.endpoint_id AND l.subject_id = dead.subject_id
          AND l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < l.last_sequence
        LIMIT 1
    ) stopped ON true
)
SELECT coalesce((SELECT array_agg(subject_id) FROM held), '{}') AS ids,
       (SELECT count(*) FROM due) < %(most)s AND (SELECT count(*) FROM leased) < %(most)s
       AND (SELECT count(*) FROM dead) < %(most)s AS complete
