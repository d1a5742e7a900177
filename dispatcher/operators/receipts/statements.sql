-- name: in_flight
-- Entries of an endpoint that are leased now and were not tried in a time range: their first answer is pending.
-- Uses ix_lane_leased (a row for each request in flight), pk_subject, pk_entry, pk_attempt.
SELECT s.name AS subject, e.sequence, e.key, sha256(e.body) AS body_sha256
FROM holdfast.lane l
JOIN holdfast.subject s ON s.id = l.subject_id
JOIN holdfast.entry e
  ON e.subject_id = l.subject_id
 AND e.sequence > l.delivered_sequence AND e.sequence <= l.claimed_sequence
 -- Prunes partitions, as the claim does.
 AND e.created_at >= l.head_created_at - interval '1 hour'
WHERE l.token IS NOT NULL AND l.endpoint_id = %(endpoint_id)s AND l.subject_id <= %(last_subject)s
  AND l.subject_id >= %(first_subject)s
  AND NOT EXISTS (
      SELECT FROM holdfast.attempt a
      WHERE a.endpoint_id = l.endpoint_id AND a.subject_id = l.subject_id AND a.sequence = e.sequence
        AND a.finished_at >= %(since)s AND a.finished_at < %(until)s)
ORDER BY l.subject_id, e.sequence


-- name: inbox_disordered
-- I11: what an inbox applied in a time range after it had applied a later sequence of the same subject.
-- Reads the inbox of that time, by ix_inbox_received_at, and sorts it; the caller counts and keeps the first.
SELECT key, subject, sequence, outcome, body_sha256, received_at, highest
FROM (
    SELECT *, max(sequence) OVER (
        PARTITION BY subject ORDER BY received_at, sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS highest
    FROM {schema}.inbox
    WHERE received_at >= %(since)s AND received_at < %(until)s AND outcome = 'applied'
) ordered
WHERE highest > sequence


-- name: inbox_known
-- What a receiver's inbox knows of some keys.
-- Uses pk_inbox.
SELECT key, subject, sequence, outcome, body_sha256, received_at
FROM {schema}.inbox
WHERE key = ANY (%(keys)s::text[])


-- name: inbox_received
-- Every key that a receiver first processed in a time range; read once, through a cursor.
-- Scans the inbox once, or uses an index on received_at if there is one; sorts nothing.
SELECT key, subject, sequence, outcome, body_sha256, received_at
FROM {schema}.inbox
WHERE received_at >= %(since)s AND received_at < %(until)s
  AND (%(subject)s::text IS NULL OR subject = %(subject)s::text)


-- name: inbox_session
-- Bounds what a comparison may cost a receiver's database, for this transaction only: it may be a pooler's session.
-- Reads no table. The one scan of the inbox may take minutes; only a person waits for it. Names resolve in pg_catalog alone.
SELECT pg_catalog.set_config('statement_timeout', '300s', true), pg_catalog.set_config('lock_timeout', '5s', true),
       pg_catalog.set_config('datestyle', 'ISO', true), pg_catalog.set_config('jit', 'off', true),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)


-- name: overtaken
-- Of some entries that a receiver answered with stale, the explained ones: sent after a later entry, or applied before.
-- Uses uq_subject_name and pk_attempt: once for each subject, the attempts from its lowest given entry on.
WITH asked AS (
    SELECT s.id AS subject_id, s.name AS subject, a.sequence
    FROM unnest(%(subjects)s::text[], %(sequences)s::bigint[]) AS a (subject, sequence)
    JOIN holdfast.subject s ON s.name = a.subject
), sent AS (
    SELECT f.subject_id, t.sequence,
           min(t.finished_at) FILTER (WHERE t.outcome = 'delivered' AND t.said IS DISTINCT FROM 'applied'
                                        AND t.said IS DISTINCT FROM 'duplicate') AS stale_at,
           -- An unknown outcome may have been applied.
           min(t.finished_at - coalesce(t.duration_ms, 0) * interval '1 millisecond') AS begun_at,
           coalesce(bool_or(t.said = 'stale'), false) AS stale,
           coalesce(bool_or(t.said IN ('applied', 'duplicate')), false) AS applied
    FROM (SELECT subject_id, min(sequence) AS lowest FROM asked GROUP BY subject_id) f
    CROSS JOIN LATERAL (
        SELECT a.sequence, a.finished_at, a.duration_ms, a.outcome, a.receipt::json ->> 'outcome' AS said
        FROM holdfast.attempt a
        WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = f.subject_id AND a.sequence >= f.lowest
          AND a.outcome IN ('delivered', 'unknown')
    ) t
    GROUP BY f.subject_id, t.sequence
), judged AS (
    SELECT subject_id, sequence, stale_at, applied,
           min(begun_at) FILTER (WHERE applied OR NOT stale) OVER (
               PARTITION BY subject_id ORDER BY sequence DESC
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS later_begun_at
    FROM sent
)
SELECT asked.subject, asked.sequence
FROM asked
JOIN judged USING (subject_id, sequence)
WHERE judged.applied OR judged.later_begun_at < judged.stale_at


-- name: page
-- Entries that were tried at an endpoint in a time range, one row each: the attempt that delivered it, else the newest one.
-- Uses pk_attempt of those partitions, merged in its order (no sort); pk_subject; pk_entry of two partitions, of all if older.
WITH page AS MATERIALIZED (
    -- Sorted inside: before Postgres 16, DISTINCT ON itself sorts all rows, not those of an entry.
    SELECT DISTINCT ON (subject_id, sequence) subject_id, sequence, finished_at, outcome, receipt
    FROM (
        SELECT a.subject_id, a.sequence, a.finished_at, a.number, a.outcome, a.receipt,
               a.outcome = 'delivered' AS delivered, a.receipt IS NOT NULL AS answered
        FROM holdfast.attempt a
        WHERE a.endpoint_id = %(endpoint_id)s
          AND a.finished_at >= %(since)s AND a.finished_at < %(until)s
          AND (a.subject_id, a.sequence) > (%(after_subject)s, %(after_sequence)s)
          AND a.subject_id <= %(last_subject)s
        ORDER BY subject_id, sequence, delivered DESC, answered DESC, finished_at DESC, number DESC
    ) sorted
    ORDER BY subject_id, sequence, delivered DESC, answered DESC, finished_at DESC, number DESC
    LIMIT %(limit)s
)
SELECT page.subject_id, page.sequence, s.name AS subject, page.outcome::text AS outcome, page.receipt, e.key,
       CASE WHEN %(hashed)s THEN sha256(e.body) END AS body_sha256,
       -- Delivered outside this range: part of another comparison.
       page.outcome <> 'delivered' AND EXISTS (
           SELECT FROM holdfast.attempt d
           WHERE d.endpoint_id = %(endpoint_id)s AND d.subject_id = page.subject_id
             AND d.sequence = page.sequence AND d.outcome = 'delivered') AS elsewhere
FROM page
JOIN holdfast.subject s ON s.id = page.subject_id
LEFT JOIN LATERAL (
    -- The second branch runs only if the first finds nothing.
    (SELECT key, body FROM holdfast.entry
     WHERE subject_id = page.subject_id AND sequence = page.sequence
       AND created_at >= page.finished_at - interval '1 day'
       AND created_at <= page.finished_at + interval '1 hour'
     LIMIT 1)
    UNION ALL
    (SELECT key, body FROM holdfast.entry
     WHERE subject_id = page.subject_id AND sequence = page.sequence
     LIMIT 1)
    LIMIT 1
) e ON true
ORDER BY page.subject_id, page.sequence


-- name: settings
-- Bounds the statements of a comparison, for this session only, and restricts pages to index scans: a plan that sorts a
-- partition for each page would take hours instead of seconds. With little memory such a sort looks as expensive as it is: it
-- is planned for all rows, of which a page needs a few. Needs no index.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false), set_config('jit', 'off', false),
       set_config('work_mem', '64kB', false),
       set_config('default_transaction_read_only', 'on', false)


-- name: strangers
-- Of some keys in wire form, those that no entry ever had; texts that are not keys are among them.
-- Uses pk_entry_key.
SELECT k.key
FROM unnest(%(keys)s::text[]) AS k (key)
WHERE NOT EXISTS (
    SELECT FROM holdfast.entry_key e
    WHERE e.key = CASE WHEN k.key ~ '^hf_[0-9a-f]{32}$' THEN substr(k.key, 4)::uuid END)


-- name: subjects
-- The id of a subject by its name; without a name, the highest id.
-- Uses uq_subject_name or pk_subject.
SELECT CASE WHEN %(name)s::text IS NULL THEN (SELECT max(id) FROM holdfast.subject)
            ELSE (SELECT id FROM holdfast.subject WHERE name = %(name)s::text) END AS id
