-- Some staged entries as rows of `prepared.ENTRIES`, in the order of the given ordinals.
-- No index: it reads all of both tables.
WITH wanted AS (
    SELECT staged.*, given.place
    FROM unnest(%(ordinals)s::bigint[]) WITH ORDINALITY AS given (ordinal, place)
    JOIN pg_temp.holdfast_staged AS staged USING (ordinal)
),
named AS (
    SELECT key, min(stage.key_text) AS key_text
    FROM {stage} AS stage
    JOIN (SELECT DISTINCT key FROM wanted) AS keys USING (key)
    WHERE stage.attempt = ANY(%(attempts)s::bigint[]) AND stage.reason IS NULL
    GROUP BY key
)
SELECT subject, type, key_text, replace(key::text, '-', '') AS key, occurred_at, priority, traceparent, head, tail
FROM wanted
JOIN named USING (key)
ORDER BY place
