-- Records the new keys, sorted so that two streams wait in one direction only, and numbers those
-- entries that neither were overtaken nor repeat a type. Index: pk_entry_key, uq_subject_name.
WITH fresh AS (
    INSERT INTO holdfast.entry_key (key, content, batch_no)
    SELECT key, content, %(batch_no)s FROM pg_temp.holdfast_staged ORDER BY key
    ON CONFLICT (key) DO NOTHING
    RETURNING key
),
timed AS (
    SELECT
        staged.ordinal,
        staged.type,
        staged.occurred_at,
        subject.id AS subject_id,
        subject.last_sequence,
        subject.last_type,
        %(suppress)s AND coalesce(staged.occurred_at < subject.last_occurred_at, false) AS overtaken
    FROM pg_temp.holdfast_staged AS staged
    JOIN fresh USING (key)
    JOIN holdfast.subject ON subject.name = staged.subject
),
judged AS (
    SELECT
        *,
        %(suppress)s AND type IS NOT DISTINCT FROM lag(type, 1, last_type)
            OVER (PARTITION BY subject_id ORDER BY ordinal) AS repeats
    FROM timed WHERE NOT overtaken
),
numbered AS (
    INSERT INTO pg_temp.holdfast_numbered (ordinal, subject_id, sequence, type, occurred_at)
    SELECT
        ordinal,
        subject_id,
        last_sequence + row_number() OVER (PARTITION BY subject_id ORDER BY ordinal),
        type,
        occurred_at
    FROM judged WHERE NOT repeats
    RETURNING ordinal
)
SELECT
    (SELECT count(*) FROM fresh) AS fresh,
    (SELECT count(*) FROM numbered) AS numbered,
    (SELECT count(*) FROM timed WHERE overtaken) AS overtaken
