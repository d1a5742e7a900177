-- Leases the lanes that lane_due.sql locked and returns their next entries in order. A lane whose next entry is not found is not
-- leased and comes back as one row without an entry: lane_empty.sql decides what becomes of it. Uses pk_lane, pk_entry, pk_attempt.
-- Partitions are pruned twice. By the setting when the statement begins: a statement opens each partition that it cannot rule out
-- then, and a bound of a row rules out none. By the lane's own bound for each lane: one old lane does not have the others search
-- every day. Both are safe here alone, as nobody can change a locked row: where Postgres 18 has to check a row again, it
-- confuses the partitions ("pfree called with invalid pointer").
WITH due AS MATERIALIZED (
    SELECT w.entries, l.version, l.endpoint_id, l.subject_id, l.delivered_sequence, l.last_sequence, l.claimed_sequence,
           l.attempt, l.rescued, l.priority, l.due_at, p.types, r.key_window_seconds,
           l.head_created_at - interval '1 hour' AS written_from,
           -- The endpoint's running clock, less what it was when the head was first tried.
           greatest(0, (extract(epoch FROM CASE
               WHEN r.stalled_since IS NULL THEN now()
               ELSE least(now(), r.stalled_since) + greatest(now() - r.stalled_until, '0')
           END) * 1000000)::bigint - r.stalled_us - l.tried_since_us) AS tried_us
    FROM json_to_recordset(current_setting('holdfast.lanes')::json)
             AS w (endpoint_id integer, entries integer, versions tid[])
    JOIN holdfast.endpoint p ON p.id = w.endpoint_id
    JOIN holdfast.endpoint_pace r ON r.endpoint_id = w.endpoint_id
    CROSS JOIN LATERAL (
        SELECT lane.*, lane.ctid AS version
        FROM holdfast.lane
        WHERE lane.ctid = ANY (w.versions)
        OFFSET 0
    ) l
),
taken AS MATERIALIZED (
    SELECT d.version, d.endpoint_id, d.subject_id, d.delivered_sequence, d.last_sequence,
           d.priority, d.due_at, d.key_window_seconds, n.sequence, n.key, n.traceparent, n.body, n.place, n.created_at,
           CASE WHEN n.sequence > d.claimed_sequence THEN 0 ELSE d.tried_us END AS tried_us,
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
          AND e.created_at >= to_timestamp(current_setting('holdfast.written_from')::float8)
          AND e.created_at <= to_timestamp(current_setting('holdfast.written_to')::float8)
          AND e.created_at >= d.written_from
          AND (d.types = '{}' OR e.type = ANY (d.types))
        ORDER BY e.sequence
        LIMIT d.entries
    -- An endpoint that takes every type takes every sequence: what stands behind a missing one is not for now.
    ) n ON (d.types <> '{}' OR n.sequence = d.delivered_sequence + n.place)
       AND (n.place = 1 OR n.bytes <= %(bytes)s)
    CROSS JOIN LATERAL (
        -- A subquery in a CASE, which is not even begun where nothing was handed out before.
        SELECT CASE WHEN n.sequence <= d.claimed_sequence AND NOT (n.place = 1 AND d.attempt > 0) THEN (
            -- A rescue has no duration.
            SELECT ARRAY[max(a.number), count(*) FILTER (WHERE a.duration_ms IS NULL)::integer]
            FROM holdfast.attempt a
            WHERE a.endpoint_id = d.endpoint_id AND a.subject_id = d.subject_id
              AND a.sequence = n.sequence
              AND a.finished_at >= least(to_timestamp(current_setting('holdfast.written_from')::float8), now() - interval '1 day')
        ) END AS counts
        OFFSET 0
    ) tried
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
        WHERE sequence IS NOT NULL
        GROUP BY version
    ) h
    -- In its place: the way through pk_lane passes every version that an old snapshot keeps, and a plan made while the table was
    -- small would pass every lane.
    WHERE lane.ctid = h.version
)
SELECT endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
       -- Of a lane's first row alone: reading a moment is what takes longest.
       CASE WHEN coalesce(place, 1) = 1 THEN due_at END AS due_at,
       tried_us, sequence, number, key, created_at, traceparent, body, rescued,
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
             AND a.finished_at >= least(to_timestamp(current_setting('holdfast.written_from')::float8), now() - interval '1 day')
       ), false) AND NOT EXISTS (
           SELECT FROM holdfast.dead_letter d
           WHERE d.endpoint_id = taken.endpoint_id AND d.subject_id = taken.subject_id
             AND d.sequence = taken.sequence AND d.window_waived
       ) ELSE false END AS forgotten
FROM taken
ORDER BY endpoint_id, subject_id, sequence
