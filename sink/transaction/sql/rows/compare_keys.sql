-- How a replay's keys differ from those the batch wrote: for each side the count and the first rows,
-- at most 10,000 in all, by position from 0 in the replay. A key that an older batch recorded was a
-- duplicate in the batch too. Index: ix_entry_key_batch_no, pk_entry_key.
WITH ledger AS (
    SELECT key, content FROM holdfast.entry_key WHERE batch_no = %(batch_no)s
),
replay AS (
    SELECT key, content, position - 1 AS position
    FROM unnest(%(keys)s::uuid[], %(contents)s::uuid[]) WITH ORDINALITY
        AS given (key, content, position)
),
difference AS (
    SELECT
        key,
        replay.position,
        CASE
            WHEN replay.key IS NULL THEN 'only_in_ledger'
            WHEN ledger.key IS NULL THEN 'only_in_replay'
            ELSE 'changed'
        END AS side
    FROM ledger FULL JOIN replay USING (key)
    WHERE ledger.content IS DISTINCT FROM replay.content
        AND (ledger.key IS NOT NULL OR NOT EXISTS (
            SELECT FROM holdfast.entry_key AS older
            WHERE older.key = replay.key AND older.batch_no < %(batch_no)s
        ))
),
placed AS (
    SELECT
        key,
        position,
        side,
        row_number() OVER (PARTITION BY side ORDER BY key) AS place,
        count(*) OVER (PARTITION BY side) AS count
    FROM difference
)
SELECT side, count, key, position, place FROM placed ORDER BY place, side LIMIT 10000
