-- How a replay's keys differ from those the batch wrote: count and first 20 by side; a key that an
-- older batch recorded was the batch's then too. Index: ix_entry_key_batch_no, pk_entry_key.
WITH ledger AS (
    SELECT key, content FROM holdfast.entry_key WHERE batch_no = %(batch_no)s
),
replay AS (
    SELECT key, content FROM pg_temp.holdfast_staged
),
difference AS (
    SELECT
        key,
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
)
SELECT side, count(*) AS count, (array_agg(key ORDER BY key))[1:20] AS first
FROM difference GROUP BY side
