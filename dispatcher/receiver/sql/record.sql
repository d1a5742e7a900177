-- Records a new key and moves its subject's fence, or records it as stale when the fence is already there.
-- Index: pk_inbox_subject, pk_inbox; a key that is there after all raises, so nothing can be applied twice.
WITH fence AS (
    INSERT INTO {schema}.inbox_subject AS fenced (subject, last_sequence)
    VALUES (%(subject)s, %(sequence)s)
    ON CONFLICT (subject) DO UPDATE SET last_sequence = excluded.last_sequence
        WHERE fenced.last_sequence < excluded.last_sequence
    RETURNING subject
)
INSERT INTO {schema}.inbox (key, body_sha256, subject, sequence, outcome)
SELECT %(key)s, %(body_sha256)s, %(subject)s, %(sequence)s,
       CASE WHEN EXISTS (SELECT FROM fence) THEN 'applied' ELSE 'stale' END
RETURNING outcome, received_at
