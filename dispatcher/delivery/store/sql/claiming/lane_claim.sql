-- Leases due lanes of each endpoint and returns their next entries in order. A lane without an entry, or whose next entry is
-- missing (gap), is not leased and comes back as one row. Uses ix_lane_due, pk_lane, pk_entry, pk_attempt. A look is one
-- range of ix_lane_due: lanes of one priority whose retry is not yet due, or that others have, are in none and cost nothing.
-- With `free`, endpoints that are not sent to freely (as in pace_take.sql) have no lanes, and one that is not leased stays as
-- it is: nobody looks at the answer before COMMIT.
-- Partitions are pruned once, when the statement begins: bounds of a row would have it open those of every day that is stored.
-- Entries written before both a day ago and `since` are in none of those; a lane that may have some is not leased, and its row
-- says from when on to look. Nor can there be bounds of both kinds where rows are locked: Postgres 18 confuses the partitions
-- when somebody changed a row meanwhile ("pfree called with invalid pointer").
WITH due AS MATERIALIZED (
    SELECT l.version, l.endpoint_id, l.subject_id, l.delivered_sequence, l.last_sequence, l.claimed_sequence,
           l.attempt, l.rescued, l.head_created_at, l.priority, l.due_at, p.types, w.entries, r.key_window_seconds,
           -- A subject's created_at never falls, so the last head's bounds the next one's.
           l.head_created_at - interval '1 hour' < least(%(since)s::timestamptz, now() - interval '1 day') AS earlier,
           -- The endpoint's running clock, less what it was when the head was first tried.
           greatest(0, (extract(epoch FROM CASE
               WHEN r.stalled_since IS NULL THEN now()
               ELSE least(now(), r.stalled_since) + greatest(now() - r.stalled_until, '0')
           END) * 1000000)::bigint - r.stalled_us - l.tried_since_us) AS tried_us
    FROM unnest(%(endpoint_ids)s::integer[], %(lanes)s::integer[], %(entries)s::integer[])
             AS w (endpoint_id, lanes, entries)
    JOIN holdfast.endpoint p ON p.id = w.endpoint_id AND p.state = 'active'
    JOIN holdfast.endpoint_pace r ON r.endpoint_id = w.endpoint_id
     AND (NOT %(free)s OR p.rate_per_second IS NULL AND r.breaker = 'closed'
                          AND coalesce(r.held_until <= now(), true))
    CROSS JOIN LATERAL (
        SELECT found.*
        FROM unnest(%(look_endpoint_ids)s::integer[], %(look_priorities)s::smallint[],
                    %(look_from)s::timestamptz[], %(look_to)s::timestamptz[])
                 AS look (endpoint_id, priority, due_from, due_to)
        CROSS JOIN LATERAL (
            SELECT lane.*, lane.ctid AS version
            FROM holdfast.lane
            WHERE lane.endpoint_id = look.endpoint_id AND lane.priority = look.priority
              AND lane.token IS NULL AND lane.due_at >= look.due_from
              AND lane.due_at < look.due_to AND lane.due_at <= now()
            ORDER BY lane.due_at
            LIMIT w.lanes
            FOR NO KEY UPDATE SKIP LOCKED
        ) found
        WHERE look.endpoint_id = w.endpoint_id
        -- Rows come look by look, in the order of the looks, and no more are locked than this.
        LIMIT w.lanes
    ) l
),
taken AS MATERIALIZED (
    SELECT d.version, d.endpoint_id, d.subject_id, d.delivered_sequence, d.last_sequence,
           d.priority, d.due_at, d.key_window_seconds, n.sequence, n.key, n.traceparent, n.body, n.place,
           coalesce(n.created_at, CASE WHEN d.earlier THEN d.head_created_at - interval '1 hour' END) AS created_at,
           CASE WHEN n.sequence > d.claimed_sequence THEN 0 ELSE d.tried_us END AS tried_us,
           -- An endpoint that takes every type takes every sequence: one that is not there is missing.
           coalesce(d.types = '{}' AND n.sequence > d.delivered_sequence + n.place, false) AS gap,
           -- The head's attempts are counted in its lane; those of an entry that was handed out
           -- before and did not become head are on record.
           CASE WHEN n.place IS NULL THEN NULL
                -- Never handed out: what its lane counts is of a head that is stored no more.
                WHEN n.sequence > d.claimed_sequence THEN 1
                WHEN n.place = 1 AND d.attempt > 0 THEN d.attempt + 1
                ELSE 1 + coalesce(tried.counts[1], 0)
           END AS number,
           CASE WHEN n.sequence > d.claimed_sequence THEN 0
                WHEN n.place = 1 AND d.attempt > 0 THEN d.rescued
                ELSE coalesce(tried.counts[2], 0)
           END AS rescued
    FROM due d
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.created_at, e.key, e.traceparent, e.body,
               row_number() OVER (ORDER BY e.sequence) AS place,
               sum(octet_length(e.body)) OVER (ORDER BY e.sequence) AS bytes
        FROM holdfast.entry e
        WHERE e.subject_id = d.subject_id
          AND e.sequence > d.delivered_sequence AND e.sequence <= d.last_sequence
          AND NOT d.earlier
          AND e.created_at >= least(%(since)s::timestamptz, now() - interval '1 day')
          -- Where a database clock was set back, entries stand in its future: whoever finds none asks again without these bounds.
          AND e.created_at <= now() + %(ahead)s::interval
          AND (d.types = '{}' OR e.type = ANY (d.types))
        ORDER BY e.sequence
        LIMIT d.entries
    -- What stands behind a gap is left for the claim that meets it at the head.
    ) n ON n.place = 1 OR (n.bytes <= %(bytes)s
       AND (d.types <> '{}' OR n.sequence = d.delivered_sequence + n.place))
    CROSS JOIN LATERAL (
        -- A subquery in a CASE, which is not even begun where nothing was handed out before.
        SELECT CASE WHEN n.sequence <= d.claimed_sequence AND NOT (n.place = 1 AND d.attempt > 0) THEN (
            -- A rescue has no duration.
            SELECT ARRAY[max(a.number), count(*) FILTER (WHERE a.duration_ms IS NULL)::integer]
            FROM holdfast.attempt a
            WHERE a.endpoint_id = d.endpoint_id AND a.subject_id = d.subject_id
              AND a.sequence = n.sequence
              AND a.finished_at >= least(%(since)s::timestamptz, now() - interval '1 day') - interval '1 hour'
        ) END AS counts
        OFFSET 0
    ) tried
),
held_back AS (
    UPDATE holdfast.lane
    SET due_at = now() + interval '60 seconds'
    FROM taken t
    WHERE t.gap AND NOT %(free)s AND lane.ctid = t.version
),
leased AS (
    UPDATE holdfast.lane
    SET token = %(token)s,
        turn = lane.turn + 1,
        lease_until = now() + %(lease_seconds)s * interval '1 second',
        attempt = h.number,
        rescued = h.rescued,
        tried_since_us = CASE WHEN h.sequence <= lane.claimed_sequence THEN lane.tried_since_us END,
        claimed_sequence = greatest(lane.claimed_sequence, h.last_sequence),
        head_created_at = h.created_at
    FROM (
        SELECT version, min(sequence) AS sequence, max(sequence) AS last_sequence,
               min(number) FILTER (WHERE place = 1) AS number,
               min(rescued) FILTER (WHERE place = 1) AS rescued,
               min(created_at) FILTER (WHERE place = 1) AS created_at
        FROM taken
        WHERE sequence IS NOT NULL AND NOT gap
        GROUP BY version
    ) h
    -- In its place: the way through pk_lane passes every version that an old snapshot keeps, and a plan made while the table was
    -- small would pass every lane. One that somebody changed between our snapshot and our lock is not there for us; it is left to
    -- the next claim, as those are that others lock.
    WHERE lane.ctid = h.version
    RETURNING h.version
)
SELECT endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
       -- Of a lane's first row alone: reading a moment is what takes longest.
       CASE WHEN coalesce(place, 1) = 1 THEN due_at END AS due_at,
       tried_us, gap, sequence, number, key, created_at, traceparent, body, rescued,
       -- May have been received longer ago than the receiver keeps keys, and nobody said that it may be sent all the same.
       -- What was not sent (failed without a status, refused) counts for nothing. When a rescued attempt, or one whose day
       -- was dropped, was sent, nobody knows: not before its entry was written. Ages: a window may be 12 digits long.
       CASE WHEN number > 1 AND extract(epoch FROM now() - created_at) > key_window_seconds THEN coalesce((
           SELECT extract(epoch FROM now() - CASE WHEN min(a.number) = 1 THEN
                      min(coalesce(a.finished_at - a.duration_ms * interval '1 millisecond', taken.created_at))
                          FILTER (WHERE a.outcome <> 'refused' AND (a.outcome <> 'failed' OR a.status IS NOT NULL))
                  ELSE taken.created_at END) > key_window_seconds
           FROM holdfast.attempt a
           WHERE a.endpoint_id = taken.endpoint_id AND a.subject_id = taken.subject_id
             AND a.sequence = taken.sequence
             AND a.finished_at >= least(%(since)s::timestamptz, now() - interval '1 day') - interval '1 hour'
       ), false) AND NOT EXISTS (
           SELECT FROM holdfast.dead_letter d
           WHERE d.endpoint_id = taken.endpoint_id AND d.subject_id = taken.subject_id
             AND d.sequence = taken.sequence AND d.window_waived
       ) ELSE false END AS forgotten
FROM taken
WHERE gap OR sequence IS NULL OR version IN (SELECT version FROM leased)
ORDER BY endpoint_id, subject_id, sequence
