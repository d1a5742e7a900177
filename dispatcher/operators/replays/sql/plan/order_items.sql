-- Determines for each entry, at each endpoint that takes it or that it was sent to, what a replay would do. Entries delivered
-- after `as_of`, and entries that another replay will send, are left unchanged; entries that a person cancelled there, and those that
-- never arrived and were reissued under another key, are left out. Uses pk_lane, pk_endpoint_pace, uq_dead_letter_open, pk_attempt, pk_entry, ix_replay_item_open,
-- pk_replay, pk_entry_key; reads all of replay, a small table of people's plans, and the items of reissues.
INSERT INTO pg_temp.holdfast_found (
    endpoint_id, subject_id, sequence, created_at, key, kind, receipt, forgotten, taken_by, place
)
SELECT j.endpoint_id, j.subject_id, j.sequence, j.created_at, j.key,
       CASE WHEN j.taken_by IS NULL THEN j.kind ELSE 'nothing' END, j.receipt, j.forgotten, j.taken_by,
       row_number() OVER (
           PARTITION BY j.kind = 'nothing' OR j.taken_by IS NOT NULL
           ORDER BY j.created_at, j.subject_id, j.sequence, j.endpoint_id
       )
FROM (
    SELECT p.id AS endpoint_id, c.subject_id, c.sequence, c.created_at, c.key, coalesce(tried.receipt, false) AS receipt,
           CASE
               WHEN tried.delivered_at > coalesce(%(as_of)s::timestamptz, now()) THEN 'nothing'
               WHEN tried.delivered_at IS NOT NULL THEN 'resend'
               WHEN d.id IS NOT NULL AND c.sequence > l.delivered_sequence THEN 'release'
               WHEN c.sequence <= l.delivered_sequence THEN 'resend'
               -- A lease has already counted the attempt in flight.
               WHEN head.sequence = c.sequence AND l.attempt > (l.token IS NOT NULL)::integer THEN 'hasten'
               ELSE 'nothing'
           END::holdfast.replay_kind AS kind,
           CASE
               WHEN tried.delivered_at IS NOT NULL THEN 'delivered'
               WHEN d.id IS NOT NULL THEN 'dead'
               -- Dismissed by a person, or its attempts were dropped: only a filter by its key selects it.
               WHEN c.sequence <= l.delivered_sequence THEN 'passed'
               ELSE 'waiting'
           END AS standing,
           tried.attempts > 0 AND coalesce(
               coalesce(tried.first_at, c.created_at) < now() - r.key_window_seconds * interval '1 second', false
           ) AS forgotten,
           other.id AS taken_by
    FROM pg_temp.holdfast_candidate c
    JOIN holdfast.endpoint p ON %(endpoint)s::text IS NULL OR p.name = %(endpoint)s::text
    JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
    LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = c.subject_id
    LEFT JOIN holdfast.dead_letter d
      ON d.endpoint_id = p.id AND d.subject_id = c.subject_id AND d.sequence = c.sequence AND d.resolution IS NULL
    CROSS JOIN LATERAL (
        SELECT count(*) AS attempts, max(a.finished_at) FILTER (WHERE a.outcome = 'delivered') AS delivered_at,
               bool_or(a.receipt IS NOT NULL) AS receipt, min(a.finished_at) FILTER (WHERE a.number = 1) AS first_at
        FROM holdfast.attempt a
        WHERE a.endpoint_id = p.id AND a.subject_id = c.subject_id AND a.sequence = c.sequence
          AND a.finished_at >= c.created_at - interval '1 hour'
    ) tried
    LEFT JOIN LATERAL (
        SELECT e.sequence
        FROM holdfast.entry e
        WHERE c.sequence > l.delivered_sequence AND l.attempt > 0
          AND e.subject_id = c.subject_id AND e.sequence > l.delivered_sequence
          AND e.created_at >= l.head_created_at - interval '1 hour'
          AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
        ORDER BY e.sequence
        LIMIT 1
    ) head ON true
    LEFT JOIN LATERAL (
        SELECT y.id
        FROM holdfast.replay_item i
        JOIN holdfast.replay y ON y.id = i.replay_id AND y.state = 'applying'
        WHERE i.endpoint_id = p.id AND i.subject_id = c.subject_id AND i.sequence = c.sequence
          AND i.settled_at IS NULL AND i.replay_id <> %(id)s
        LIMIT 1
    ) other ON true
    LEFT JOIN (
        -- Also one whose process died between writing the new entry and recording that.
        SELECT DISTINCT i.endpoint_id, i.subject_id, i.sequence
        FROM holdfast.replay y
        JOIN holdfast.replay_item i ON i.replay_id = y.id
        LEFT JOIN holdfast.entry_key k ON i.settled_at IS NULL AND k.key = i.new_key
        WHERE y.verb = 'reissue' AND (i.settled_at IS NOT NULL OR k.key IS NOT NULL)
    ) reissued ON reissued.endpoint_id = p.id AND reissued.subject_id = c.subject_id AND reissued.sequence = c.sequence
    WHERE (reissued.endpoint_id IS NULL OR tried.delivered_at IS NOT NULL)
      AND NOT EXISTS (
          SELECT FROM pg_temp.holdfast_cancelled x
          WHERE x.subject_id = c.subject_id AND x.sequence = c.sequence AND coalesce(x.endpoint_id, p.id) = p.id
      )
      AND (tried.attempts > 0
           OR (p.types = '{}' OR c.type = ANY (p.types)) AND $takes_stream(p.id, c.batch_no)
              AND (p.starts_after IS NULL OR c.batch_no > p.starts_after OR c.batch_no <@ p.starts_late))
) j
WHERE j.standing = ANY (%(states)s::text[])
   OR cardinality(%(states)s::text[]) = 0 AND (j.standing <> 'passed' OR %(named)s)
