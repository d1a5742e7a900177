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
