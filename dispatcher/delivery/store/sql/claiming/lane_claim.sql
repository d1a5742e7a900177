-- Leases the lanes that lane_due.sql locked and returns their next entries in order. A lane whose next entry is not found is not
-- leased and is returned as one row without an entry: `lane_empty` decides about it. Uses pk_lane, pk_entry, pk_attempt.
-- Partitions are pruned twice. First at the start of the statement, by the settings: the executor opens every partition that is
-- not pruned then, and bounds from rows cannot prune at that time. Then for each lane, by its own bound, so that one old lane does
-- not make the others search every day. Both are safe only here, because the rows are locked and cannot change: when Postgres 18
-- rechecks a changed row, it confuses pruned partitions ("pfree called with invalid pointer").
WITH due AS MATERIALIZED (
    SELECT w.entries, l.version, l.endpoint_id, l.subject_id, l.delivered_sequence, l.last_sequence, l.claimed_sequence,
           l.attempt, l.rescued, l.priority, l.due_at, p.types, r.key_window_seconds,
           l.head_created_at - interval '1 hour' AS written_from,
           -- The endpoint's running clock, minus its value when the head was first tried.
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
           -- The lane counts the attempts of its head. For an entry that was claimed before and is
           -- not the head, they are counted in `attempt`.
           CASE WHEN n.place IS NULL THEN NULL
                -- Never claimed: the count in the lane belongs to a head that is no longer stored.
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
          AND (d.types = '{}' OR e.type = ANY (d.types)) AND $takes_stream(d.endpoint_id, e.batch_no)
        ORDER BY e.sequence
        LIMIT d.entries
    -- An endpoint that takes every type of every stream takes every sequence: entries after a missing one must wait.
    ) n ON (d.types <> '{}' OR $chooses(d.endpoint_id) OR n.sequence = d.delivered_sequence + n.place)
       AND (n.place = 1 OR n.bytes <= %(bytes)s)
    CROSS JOIN LATERAL (
        -- A subquery in a CASE, so that it does not run for entries that were never claimed.
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
    -- By ctid: access through pk_lane would visit every version that an old snapshot keeps, and a plan made while the table was
    -- small would scan every lane.
    WHERE lane.ctid = h.version
)
SELECT endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
       -- Only in the first row of a lane: parsing a timestamp costs most.
       CASE WHEN coalesce(place, 1) = 1 THEN due_at END AS due_at,
       tried_us, sequence, number, key, created_at, traceparent, body, rescued,
       -- Whether the receiver may have received it longer ago than it keeps keys, and no operator has permitted to send it again.
       -- Attempts that were not sent (failed without a status, refused) do not count. The send time of a rescued attempt, or of
       -- one whose day was dropped, is unknown: the time of the entry is its lower bound. The comparison uses ages, because a
       -- window may have 12 digits of seconds, too many to subtract from a timestamp.
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
