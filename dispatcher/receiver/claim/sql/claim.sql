-- Claims a key: inserts its row and advances its subject's sequence. No row: the key is known, or key or subject is locked.
-- Index: pk_inbox, pk_inbox_subject. Advisory locks are tried, never waited for, and end with the transaction.
WITH fresh AS (
    INSERT INTO {schema}.inbox (key, body_sha256, subject, sequence, outcome)
    SELECT %(key)s::text, %(body_sha256)s::bytea, %(subject)s, %(sequence)s::bigint,
           CASE WHEN EXISTS (SELECT FROM {schema}.inbox_subject
                              WHERE subject = %(subject)s AND last_sequence >= %(sequence)s)
                THEN 'stale' ELSE 'applied' END
     WHERE CASE WHEN EXISTS (SELECT FROM {schema}.inbox WHERE key = %(key)s) THEN false
                ELSE pg_try_advisory_xact_lock(hashtextextended(%(schema)s || ' key ' || %(key)s, 0))
                 AND pg_try_advisory_xact_lock(
                         hashtextextended(%(schema)s || ' subject ' || %(subject)s, 0)) END
    ON CONFLICT (key) DO NOTHING
    RETURNING outcome, received_at
), fence AS (
    INSERT INTO {schema}.inbox_subject AS fenced (subject, last_sequence)
    SELECT %(subject)s, %(sequence)s::bigint FROM fresh WHERE outcome = 'applied'
    ON CONFLICT (subject) DO UPDATE SET last_sequence = excluded.last_sequence
        WHERE fenced.last_sequence < excluded.last_sequence
    RETURNING subject
)
SELECT outcome::text, (extract(epoch FROM received_at) * 1000000)::bigint, fence.subject IS NOT NULL
  FROM fresh LEFT JOIN fence ON true
