-- Moves the entries of the winning attempts into the session's staging table, the first of each key
-- only, numbered in the order of sink/rows/order.py. No index: it reads all of the stage.
WITH winning AS NOT MATERIALIZED (
    SELECT ctid AS place, * FROM {stage} WHERE attempt = ANY(%(attempts)s::bigint[]) AND reason IS NULL
),
repeated AS MATERIALIZED (
    SELECT key FROM winning GROUP BY key HAVING count(*) > 1
),
later AS MATERIALIZED (
    SELECT place
    FROM (
        SELECT
            place,
            row_number() OVER (
                PARTITION BY key
                ORDER BY
                    subject COLLATE "C", occurred_at, key_text COLLATE "C", type COLLATE "C",
                    tail COLLATE "C", priority, traceparent COLLATE "C"
            ) AS turn
        FROM winning JOIN repeated USING (key)
    ) AS turns
    WHERE turn > 1
)
INSERT INTO pg_temp.holdfast_staged
    (ordinal, subject, type, key, content, occurred_at, priority, traceparent, head, tail)
SELECT
    row_number() OVER (
        ORDER BY
            subject COLLATE "C", occurred_at, key_text COLLATE "C", type COLLATE "C",
            tail COLLATE "C"
    ) - 1,
    subject, type, key, content, occurred_at, priority, traceparent, head, tail
FROM winning
WHERE NOT EXISTS (SELECT FROM later WHERE later.place = winning.place)
