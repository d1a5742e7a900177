-- name: attempts
-- I5, I7, I8, I16: the attempts of an entry are consistent with each other and with its lane; I10: unknown outcomes are counted.
-- Uses pk_attempt of the partitions of that time (of all before it for an entry tried earlier), pk_lane, pk_replay_item.
WITH tried AS MATERIALIZED (
    SELECT subject_id, sequence, count(*) AS count, min(number) AS first, max(number) AS last, sum(number) AS sum,
           min(number) FILTER (WHERE outcome = 'delivered') AS delivered,
           count(*) FILTER (WHERE outcome = 'unknown') AS unknown,
           -- A 2xx answer about another key is unknown, with an error.
           count(*) FILTER (WHERE (outcome = 'delivered') <> coalesce(status BETWEEN 200 AND 299, false)
                              AND NOT (outcome = 'unknown' AND error IS NOT NULL)) AS misread,
           count(*) FILTER (WHERE retry_at < finished_at) AS backwards,
           max(finished_at) AS finished_at
    FROM holdfast.attempt
    WHERE endpoint_id = %(endpoint_id)s AND subject_id BETWEEN %(first_subject)s AND %(last_subject)s
      AND finished_at >= %(attempts_since)s AND finished_at < %(until)s
    GROUP BY subject_id, sequence
),
judged AS (
    SELECT t.*, l.delivered_sequence, l.last_sequence, earlier.numbers[2] AS delivered_before,
           t.last - t.first + 1 <> t.count OR (t.first + t.last) * t.count <> 2 * t.sum AS gap,
           t.delivered IS NOT NULL AND coalesce(l.delivered_sequence, 0) < t.sequence AS unpassed,
           coalesce(t.last > coalesce(earlier.numbers[2], t.delivered), false) AS again,
           coalesce(l.last_sequence, 0) < t.sequence AS unrouted,
           t.finished_at > now() + interval '1 minute' AS future,
           -- Attempts of dropped partitions are not missing.
           earlier.numbers IS NOT NULL AND earlier.numbers[1] IS DISTINCT FROM t.first - 1
           AND EXISTS (
               SELECT FROM holdfast.entry e
               WHERE e.subject_id = t.subject_id AND e.sequence = t.sequence
                 AND e.created_at >= %(attempts_kept)s::timestamptz + interval '1 hour' OFFSET 0) AS headless
    FROM tried t
    LEFT JOIN holdfast.lane l
      ON l.endpoint_id = %(endpoint_id)s AND l.subject_id = t.subject_id
     AND l.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
    CROSS JOIN LATERAL (
        SELECT CASE WHEN t.first > 1 THEN (
            SELECT ARRAY[max(a.number), min(a.number) FILTER (WHERE a.outcome = 'delivered')]
            FROM holdfast.attempt a
            WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = t.subject_id AND a.sequence = t.sequence
              AND a.finished_at < %(attempts_since)s
        ) END AS numbers
        OFFSET 0
    ) earlier
),
violations AS (
    SELECT v.rule, j.subject_id, j.sequence, v.detail
    FROM judged j
    CROSS JOIN LATERAL (VALUES
        ('attempt_gap', j.gap OR j.headless,
         format('%%s attempts, numbered %%s to %%s', j.count, j.first, j.last)),
        ('delivered_unpassed', j.unpassed,
         format('attempt %%s delivered it; its lane is at %%s', j.delivered, coalesce(j.delivered_sequence, 0))),
        ('sent_after_delivered',
         CASE WHEN j.again THEN NOT EXISTS (
             SELECT FROM holdfast.replay_item i
             WHERE i.endpoint_id = %(endpoint_id)s AND i.subject_id = j.subject_id AND i.sequence = j.sequence
             OFFSET 0) END,
         format('delivered by attempt %%s, and tried again up to %%s', coalesce(j.delivered_before, j.delivered), j.last)),
        ('answer_misread', j.misread > 0, format('%%s of its attempts', j.misread)),
        ('attempt_unrouted', j.unrouted,
         format('its lane is routed up to %%s', coalesce(j.last_sequence, 0))),
        ('time_backwards', j.backwards > 0, format('%%s of its attempts have a retry before their end', j.backwards)),
        ('time_future', j.future, format('tried at %%s', j.finished_at))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (j.gap OR j.headless OR j.unpassed OR j.again OR j.unrouted OR j.future OR j.misread > 0 OR j.backwards > 0)
      AND v.violated
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, coalesce(sum(count), 0)::bigint, NULL, NULL, 'attempts' FROM tried
UNION ALL
SELECT NULL, coalesce(sum(unknown), 0)::bigint, NULL, NULL, 'unknown_outcomes' FROM tried


-- name: audit
-- I15: every change of a person in a time range has its audit row, written in the transaction of the change.
-- Reads endpoint, stream, replay and operator_action once, with hash joins; finds resolutions in that range by a scan.
-- Uses ix_lane_on_hold for holds; the rest needs no index.
WITH recorded AS MATERIALIZED (
    SELECT acted_at, action, target FROM holdfast.operator_action
    -- A transaction may have begun before its change.
    WHERE acted_at >= %(since)s::timestamptz - interval '10 minutes'
),
renamed AS (
    -- As JSON, because before revision 0036 there is no such column.
    SELECT s.name, f.name AS former
    FROM holdfast.stream s
    CROSS JOIN LATERAL jsonb_array_elements_text(to_jsonb(s) -> 'former_names') f (name)
),
acts AS MATERIALIZED (
    SELECT acted_at, action, target FROM recorded
    UNION ALL
    -- A row keeps the name that a stream had then.
    SELECT o.acted_at, o.action, r.name FROM recorded o JOIN renamed r ON o.target = r.former
    UNION ALL
    SELECT o.acted_at, o.action, 'batch ' || r.name || substr(o.target, length('batch ' || r.former) + 1)
    FROM recorded o JOIN renamed r ON starts_with(o.target, 'batch ' || r.former || ' ')
),
changes AS (
    SELECT p.name AS target, m.moment, m.moment AS begun, 'endpoint ' || p.name AS what
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (SELECT DISTINCT unnest(ARRAY[p.created_at, p.updated_at]) AS moment) m
    UNION ALL
    -- The sink adopts a stream's first checkpoint when it creates the stream.
    SELECT name, adopted_at, adopted_at - interval '10 minutes', 'stream ' || name
    FROM holdfast.stream
    WHERE adopted_at > created_at + interval '1 minute'
    UNION ALL
    SELECT 'quarantine ' || id, resolved_at, resolved_at - interval '10 minutes', 'quarantined row ' || id
    FROM holdfast.quarantine
    WHERE resolved_at >= %(since)s AND resolved_at < %(until)s
    UNION ALL
    SELECT 'dead letter ' || d.id, d.resolved_at, d.resolved_at - interval '10 minutes', 'dead letter ' || d.id
    FROM holdfast.dead_letter d
    WHERE d.resolved_at >= %(since)s AND d.resolved_at < %(until)s
      -- Resolutions by a replay are audited with the replay.
      AND NOT EXISTS (
          SELECT FROM holdfast.replay_item i
          WHERE i.endpoint_id = d.endpoint_id AND i.subject_id = d.subject_id AND i.sequence = d.sequence)
    UNION ALL
    -- As JSON, because before revision 0035 there is no such column.
    SELECT 'batch ' || b.stream || ' ' || b.batch_id, v.accepted_at, v.accepted_at - interval '10 minutes', 'diverged replay ' || v.id
    FROM (SELECT id, batch_no, (to_jsonb(d) ->> 'accepted_at')::timestamptz AS accepted_at FROM holdfast.divergence d) v
    JOIN holdfast.batch b USING (batch_no)
    WHERE v.accepted_at IS NOT NULL
    UNION ALL
    -- Before revision 0037 the columns are those of `older`.
    SELECT 'subject ' || s.name, held.since, held.since - interval '10 minutes', 'hold of subject ' || s.name
    FROM (VALUES (NULL::timestamptz, NULL::timestamptz)) older (on_hold_since, on_hold_until)
    CROSS JOIN LATERAL (
        SELECT subject_id, on_hold_since AS since FROM holdfast.lane WHERE on_hold_until > now()
    ) held
    JOIN holdfast.subject s ON s.id = held.subject_id
    UNION ALL
    SELECT NULL, created_at, created_at, 'replay ' || id FROM holdfast.replay
),
violations AS (
    SELECT DISTINCT c.what, c.moment
    FROM changes c
    WHERE c.moment >= %(since)s AND c.moment < %(until)s
      AND NOT EXISTS (
          SELECT FROM acts a
          WHERE a.target = c.target AND a.acted_at BETWEEN c.begun AND c.moment)
      -- A replay has no target there; its audit row has the same moment.
      AND (c.target IS NOT NULL OR c.moment NOT IN (SELECT acted_at FROM acts))
)
SELECT 'unaudited' AS rule, count, format('%%s was changed at %%s', what, moment) AS detail
FROM (
    SELECT v.*, count(*) OVER () AS count, row_number() OVER (ORDER BY moment, what) AS place FROM violations v
) numbered
WHERE place <= %(limit)s


-- name: batch_run
-- The next batches after a number in a time range that together have at most N entries (at least one batch).
-- Walks uq_batch_batch_no.
SELECT count(*) AS batches, max(batch_no) AS last_batch_no, min(written_at) AS first_written_at,
       max(written_at) AS last_written_at, coalesce(sum(entry_count), 0)::bigint AS entries
FROM (
    SELECT batch_no, written_at, entry_count, sum(entry_count) OVER (ORDER BY batch_no) - entry_count AS before
    FROM (
        SELECT batch_no, written_at, entry_count
        FROM holdfast.batch
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(until_batch_no)s
          AND written_at >= %(since)s AND written_at < %(until)s
          AND (%(stream)s::text IS NULL OR stream = %(stream)s::text)
        ORDER BY batch_no
        LIMIT 10000
    ) next
) counted
WHERE before < %(entries)s


-- name: batches
-- I2, I12: the counts of a batch add up, and equal the stored entries, keys, suppressed and quarantined rows.
-- Uses uq_batch_batch_no, ix_entry_batch_no of the partitions of its moments, ix_entry_key_batch_no, ix_quarantine_batch_no, pk_suppressed.
WITH found AS (
    SELECT b.*, coalesce(e.rows, 0) AS entries, coalesce(k.rows, 0) AS keys, coalesce(q.rows, 0) AS quarantined,
           coalesce(x.rows, 0) AS suppressed
    FROM holdfast.batch b
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.entry
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
          AND created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
        GROUP BY batch_no
    ) e USING (batch_no)
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.entry_key
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
        GROUP BY batch_no
    ) k USING (batch_no)
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.quarantine
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
        GROUP BY batch_no
    ) q USING (batch_no)
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.suppressed
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
          AND suppressed_at BETWEEN %(first_written_at)s AND %(last_written_at)s
        GROUP BY batch_no
    ) x USING (batch_no)
    WHERE b.batch_no > %(after_batch_no)s AND b.batch_no <= %(last_batch_no)s
      AND b.written_at >= %(since)s AND b.written_at < %(until)s
      AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
),
violations AS (
    SELECT v.rule, f.stream, f.batch_id, f.batch_no, v.detail
    FROM found f
    CROSS JOIN LATERAL (VALUES
        ('batch_rows',
         f.row_count <> f.entry_count + f.duplicate_count + f.suppressed_count + f.quarantined_count,
         format('%%s input rows; %%s entries, %%s duplicates, %%s suppressed, %%s quarantined', f.row_count,
                f.entry_count, f.duplicate_count, f.suppressed_count, f.quarantined_count)),
        ('batch_entries', f.entry_count <> f.entries,
         format('the ledger has %%s entries, %%s are stored', f.entry_count, f.entries)),
        ('batch_keys', f.entry_count + f.suppressed_count <> f.keys,
         format('the ledger has %%s keys, %%s are stored', f.entry_count + f.suppressed_count, f.keys)),
        ('batch_quarantined', f.quarantined_count <> f.quarantined,
         format('the ledger has %%s quarantined rows, %%s are stored', f.quarantined_count, f.quarantined)),
        ('batch_suppressed',
         f.keeps_suppressed AND f.written_at >= %(suppressed_since)s AND f.suppressed_count <> f.suppressed,
         format('the ledger has %%s suppressed rows, %%s are stored', f.suppressed_count, f.suppressed))
    ) AS v (rule, violated, detail)
    WHERE v.violated
)
SELECT rule, count, stream, batch_id, detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY batch_no) AS place
    FROM violations v
) numbered
WHERE place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'batches' FROM found


-- name: days
-- The daily partitions of entry, attempt and suppressed, and whether a partition of entry was ever dropped.
-- Uses the catalogue's own indexes; reads operator_action once.
SELECT coalesce(array_agg(day ORDER BY day) FILTER (WHERE parent = 'entry'), '{}') AS entry_days,
       coalesce(array_agg(day ORDER BY day) FILTER (WHERE parent = 'attempt'), '{}') AS attempt_days,
       coalesce(array_agg(day ORDER BY day) FILTER (WHERE parent = 'suppressed'), '{}') AS suppressed_days,
       EXISTS (SELECT FROM holdfast.operator_action
               WHERE action = 'partition.drop' AND target LIKE 'entry\_%') AS dropped
FROM (
    SELECT p.relname AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_class p ON p.oid = i.inhparent
    WHERE p.relnamespace = 'holdfast'::regnamespace AND p.relname IN ('entry', 'attempt', 'suppressed')
      AND c.relname ~ ('^' || p.relname || '_[0-9]{8}$')
) days


-- name: dead
-- I5, I4: an open dead letter was not delivered, and has the key of its entry.
-- Uses uq_dead_letter_open, pk_attempt, pk_entry.
WITH found AS MATERIALIZED (
    SELECT d.id, d.subject_id, d.sequence, d.key, d.created_at
    FROM holdfast.dead_letter d
    WHERE d.resolution IS NULL AND d.endpoint_id = %(endpoint_id)s
      AND d.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
),
violations AS (
    SELECT v.rule, f.subject_id, f.sequence, f.key, v.detail
    FROM found f
    LEFT JOIN holdfast.entry e
      ON e.subject_id = f.subject_id AND e.sequence = f.sequence AND e.created_at = f.created_at
    CROSS JOIN LATERAL (VALUES
        ('dead_and_delivered', EXISTS (
            SELECT FROM holdfast.attempt a
            WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = f.subject_id AND a.sequence = f.sequence
              AND a.finished_at >= f.created_at - interval '1 hour' AND a.outcome = 'delivered' OFFSET 0),
         format('dead letter %%s', f.id)),
        ('dead_key', e.key <> f.key, format('dead letter %%s has the key hf_%%s', f.id, replace(f.key::text, '-', '')))
    ) AS v (rule, violated, detail)
    WHERE v.violated
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.key, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, NULL, 'dead_letters' FROM found


-- name: delivery
-- I9, I5: the endpoint's lane reaches a routed entry, and what a lane has passed was delivered, is a dead letter or cancelled.
-- Uses pk_entry and pk_attempt of the partitions of that time, pk_lane; later partitions and ix_batch_unrouted row by row.
WITH found AS MATERIALIZED (
    SELECT e.subject_id, e.sequence, e.key, e.batch_no, e.created_at, l.delivered_sequence, $routed(l) AS last_sequence
    FROM holdfast.entry e
    JOIN holdfast.endpoint p
      ON p.id = %(endpoint_id)s
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
     AND $takes_stream(p.id, e.batch_no)
    LEFT JOIN holdfast.lane l
      ON l.endpoint_id = %(endpoint_id)s AND l.subject_id = e.subject_id
     AND l.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
    WHERE e.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
      AND e.created_at >= %(delivery_since)s AND e.created_at < %(until)s
      AND (%(types)s::text[] = '{}' OR e.type = ANY (%(types)s::text[]))
      AND (%(stream)s::text IS NULL
           OR e.batch_no IN (SELECT b.batch_no FROM holdfast.batch b WHERE b.stream = %(stream)s::text))
),
open AS (
    SELECT f.*
    FROM found f
    LEFT JOIN (
        SELECT subject_id, sequence
        FROM holdfast.attempt
        WHERE endpoint_id = %(endpoint_id)s AND subject_id BETWEEN %(first_subject)s AND %(last_subject)s
          AND finished_at >= %(delivery_since)s::timestamptz - interval '1 hour'
          AND finished_at < %(until)s::timestamptz + interval '1 day'
          AND outcome = 'delivered'
        UNION ALL
        SELECT subject_id, sequence
        FROM holdfast.dead_letter
        WHERE endpoint_id = %(endpoint_id)s AND subject_id BETWEEN %(first_subject)s AND %(last_subject)s
        UNION ALL
        SELECT subject_id, sequence
        FROM unnest(%(cancelled_subjects)s::bigint[], %(cancelled_sequences)s::bigint[]) c (subject_id, sequence)
    ) settled USING (subject_id, sequence)
    WHERE settled.subject_id IS NULL
),
violations AS (
    SELECT v.rule, o.subject_id, o.sequence, o.key, v.detail
    FROM open o
    CROSS JOIN LATERAL (VALUES
        ('entry_unreached', CASE WHEN coalesce(o.last_sequence, 0) < o.sequence THEN NOT EXISTS (
            SELECT FROM holdfast.batch b WHERE b.batch_no = o.batch_no AND b.routed_at IS NULL OFFSET 0) END,
         coalesce(format('its lane is routed up to %%s', o.last_sequence), 'it has no lane')),
        ('passed_undelivered', CASE WHEN o.sequence <= o.delivered_sequence THEN NOT EXISTS (
            SELECT FROM holdfast.attempt a
            WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = o.subject_id AND a.sequence = o.sequence
              AND a.finished_at >= %(until)s::timestamptz + interval '1 day' AND a.outcome = 'delivered' OFFSET 0) END,
         format('its lane is at %%s', o.delivered_sequence))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (coalesce(o.last_sequence, 0) < o.sequence OR o.sequence <= o.delivered_sequence) AND v.violated
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.key, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, NULL, 'deliveries' FROM found


-- name: endpoints
-- Endpoints with the types that each takes, and since when it takes them, and these streams.
-- Reads every endpoint, and operator_action once.
SELECT p.id, p.name, p.types, (
           SELECT max(o.acted_at) + interval '1 minute'
           FROM holdfast.operator_action o
           WHERE o.target = p.name AND o.action = 'endpoint.set'
             AND (o.detail #> '{after,types}' IS NOT NULL OR o.detail #> '{after,streams}' IS NOT NULL)
       ) AS judged_from
FROM holdfast.endpoint p
WHERE %(endpoint)s::text IS NULL OR p.name = %(endpoint)s::text
ORDER BY p.id


-- name: entries
-- I4, I2: an entry's body is the one recorded with its key, and its batch is in the ledger; I16: none is in the future.
-- Uses ix_entry_batch_no of the partitions of those moments, ix_entry_key_batch_no, uq_batch_batch_no.
WITH found AS MATERIALIZED (
    SELECT e.subject_id, e.sequence, e.key, e.batch_no, e.created_at, b.stream, b.batch_id, k.key IS NOT NULL AS recorded,
           e.created_at > now() + interval '1 minute' AS future,
           -- The hash that the sink stored: of the body without the sequence, which follows the first "sequence".
           substring(sha256(
               overlay(e.body PLACING '' FROM position('"sequence":'::bytea IN e.body) + 11 FOR length(e.sequence::text))
           ) FROM 1 FOR 16) = uuid_send(k.content) AS kept
    FROM holdfast.entry e
    LEFT JOIN holdfast.batch b ON b.batch_no = e.batch_no
    LEFT JOIN holdfast.entry_key k
      ON k.key = e.key AND k.batch_no = e.batch_no
     AND k.batch_no > %(after_batch_no)s AND k.batch_no <= %(last_batch_no)s
    WHERE e.batch_no > %(after_batch_no)s AND e.batch_no <= %(last_batch_no)s
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
      AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
),
violations AS (
    SELECT v.rule, f.*, v.detail
    FROM found f
    CROSS JOIN LATERAL (VALUES
        ('entry_unbatched', f.stream IS NULL, format('it has batch number %%s', f.batch_no)),
        ('key_unrecorded', f.stream IS NOT NULL AND NOT f.recorded, 'its key is not recorded for its batch'),
        ('body_changed', f.recorded AND NOT f.kept, 'its body is not the one recorded with its key'),
        ('time_future', f.future, format('created at %%s', f.created_at))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (f.future OR f.stream IS NULL OR f.kept IS NOT TRUE) AND v.violated
)
SELECT n.rule, n.count, n.stream, n.batch_id, s.name AS subject, n.sequence, n.key, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY batch_no, subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, NULL, NULL, NULL, 'entries' FROM found


-- name: lanes
-- I6, I9: a lane's columns form a valid state, only a dead letter stops it, its times are not far in the future (I16).
-- Uses pk_lane, pk_lane_key, pk_subject, uq_dead_letter_open.
WITH found AS MATERIALIZED (
    SELECT l.*, s.name, s.last_sequence AS subject_sequence,
           (l.delivered_sequence > l.last_sequence OR l.delivered_sequence < 0
            OR $routed(l) > s.last_sequence
            OR l.claimed_sequence > l.last_sequence
            OR (l.token IS NULL) <> (l.lease_until IS NULL)
            OR l.rescued NOT BETWEEN 0 AND l.attempt
            OR (l.token IS NOT NULL OR l.due_at IS NOT NULL) AND l.delivered_sequence = l.last_sequence
            OR l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < l.last_sequence
            OR l.lease_until > now() + interval '1 hour'
            OR l.due_at > now() + interval '31 days' AND NOT $on_hold(l)
            OR k.subject_id IS NULL OR l.lanes > 1) AS suspect,
           k.subject_id IS NULL AS keyless
    FROM (SELECT *, count(*) OVER (PARTITION BY endpoint_id, subject_id) AS lanes FROM holdfast.lane) l
    JOIN holdfast.subject s ON s.id = l.subject_id
    LEFT JOIN holdfast.lane_key k ON k.endpoint_id = l.endpoint_id AND k.subject_id = l.subject_id
    WHERE l.endpoint_id = %(endpoint_id)s AND l.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
),
violations AS (
    SELECT v.rule, f.name AS subject, f.subject_id, f.delivered_sequence + 1 AS sequence, v.detail
    FROM found f
    CROSS JOIN LATERAL (VALUES
        ('lane_state', f.delivered_sequence > f.last_sequence OR f.delivered_sequence < 0,
         format('delivered up to %%s, routed up to %%s', f.delivered_sequence, f.last_sequence)),
        ('lane_state', $routed(f) > f.subject_sequence,
         format('routed up to %%s, and its subject is at %%s', $routed(f), f.subject_sequence)),
        ('lane_state', f.claimed_sequence > f.last_sequence,
         format('claimed up to %%s, routed up to %%s', f.claimed_sequence, f.last_sequence)),
        ('lane_state', (f.token IS NULL) <> (f.lease_until IS NULL), 'its lease has a token without an end, or an end without a token'),
        ('lane_state', f.rescued NOT BETWEEN 0 AND f.attempt,
         format('%%s attempts, of which %%s were rescued', f.attempt, f.rescued)),
        ('lane_state', (f.token IS NOT NULL OR f.due_at IS NOT NULL) AND f.delivered_sequence = f.last_sequence,
         'due or leased, with nothing to deliver'),
        ('lane_state', f.lanes > 1, format('exists %%s times', f.lanes)),
        ('lane_state', f.keyless, 'it has no key, so a second one could be created'),
        ('lane_stopped', CASE WHEN f.token IS NULL AND f.due_at IS NULL AND f.delivered_sequence < f.last_sequence
                              THEN NOT EXISTS (
                                  SELECT FROM holdfast.dead_letter d
                                  WHERE d.endpoint_id = f.endpoint_id AND d.subject_id = f.subject_id
                                    AND d.sequence > f.delivered_sequence AND d.sequence <= f.last_sequence
                                    AND d.resolution IS NULL
                                  OFFSET 0) END,
         format('stopped after %%s of %%s', f.delivered_sequence, f.last_sequence)),
        ('time_future', f.lease_until > now() + interval '1 hour', format('its lease ends at %%s', f.lease_until)),
        ('time_future', f.due_at > now() + interval '31 days' AND NOT $on_hold(f), format('it is due at %%s', f.due_at))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE f.suspect AND v.violated
)
SELECT rule, count, subject, sequence, detail, NULL::timestamptz AS moment
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id) AS place
    FROM violations v
) numbered
WHERE place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'lanes', NULL FROM found
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'leases_run_out', NULL FROM found WHERE lease_until < now()
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'lanes_due', min(due_at) FROM found WHERE token IS NULL AND due_at <= now()


-- name: sequences
-- I1, I2: a subject's sequences have no gap and no repeat, end at its last sequence, and grow with time (I16).
-- Uses pk_subject, pk_entry of the partitions of that time; of those before it for the first entry of a subject.
WITH seen AS MATERIALIZED (
    SELECT e.subject_id, e.sequence, e.created_at,
           lag(e.sequence) OVER (PARTITION BY e.subject_id ORDER BY e.sequence, e.created_at) AS before,
           lag(e.created_at) OVER (PARTITION BY e.subject_id ORDER BY e.sequence, e.created_at) AS created_before
    FROM holdfast.entry e
    WHERE e.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
      AND e.created_at >= %(entries_since)s AND e.created_at < %(until)s
),
ends AS (
    SELECT s.id, s.name, s.last_sequence, s.last_created_at, coalesce(m.sequence, 0) AS sequence
    FROM holdfast.subject s
    LEFT JOIN (SELECT subject_id, max(sequence) AS sequence FROM seen GROUP BY subject_id) m ON m.subject_id = s.id
    WHERE s.id BETWEEN %(first_subject)s AND %(last_subject)s
),
violations AS (
    SELECT v.rule, seen.subject_id, seen.sequence, v.detail
    FROM seen
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN seen.before IS NOT NULL THEN seen.sequence > seen.before + 1
            -- The one before may be in a dropped partition.
            WHEN seen.sequence > 1 AND NOT %(dropped)s THEN NOT EXISTS (
                SELECT FROM holdfast.entry p
                WHERE p.subject_id = seen.subject_id AND p.sequence = seen.sequence - 1
                  AND p.created_at < %(entries_since)s
                OFFSET 0)
            ELSE false
        END AS gap
    ) judged
    CROSS JOIN LATERAL (VALUES
        ('sequence_gap', judged.gap, format('the sequence before it is %%s', coalesce(seen.before::text, 'missing'))),
        ('sequence_repeated', seen.sequence = seen.before, 'two entries have this sequence'),
        ('time_backwards', seen.created_at < seen.created_before,
         format('created at %%s, and the one before it at %%s', seen.created_at, seen.created_before))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (judged.gap OR seen.sequence = seen.before OR seen.created_at < seen.created_before) AND v.violated
    UNION ALL
    SELECT 'sequence_end', id, sequence,
           format('the subject is at %%s; the last entry of this range is %%s', last_sequence, sequence)
    FROM ends
    WHERE sequence > last_sequence
       OR (sequence < last_sequence AND last_created_at >= %(entries_since)s AND last_created_at < %(until)s)
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s


-- name: settings
-- Sets this session for a check: read-only, one process, custom plans for each range, sorts and hashes in memory.
-- Needs no index.
SELECT set_config('default_transaction_read_only', 'on', false), set_config('jit', 'off', false),
       set_config('work_mem', '64MB', false), set_config('max_parallel_workers_per_gather', '0', false),
       set_config('plan_cache_mode', 'force_custom_plan', false)


-- name: size
-- The size of a check: batches of a time range with their entries, and the highest subject id.
-- Reads batch once; uses pk_subject.
SELECT count(*) AS batches, coalesce(sum(b.entry_count), 0)::bigint AS entries,
       coalesce(min(b.batch_no), 0) AS first_batch_no, coalesce(max(b.batch_no), 0) AS last_batch_no,
       coalesce((SELECT max(id) FROM holdfast.subject), 0) AS last_subject
FROM holdfast.batch b
WHERE b.written_at >= %(since)s AND b.written_at < %(until)s
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)


-- name: unrouted
-- The number of unrouted batches, and the time of the oldest.
-- Uses ix_batch_unrouted.
SELECT count(*) AS count, min(written_at) AS moment FROM holdfast.batch WHERE routed_at IS NULL
