-- Records the suppressed entries. A tail is the key member, whose length is given, the data, and a closing brace.
-- No index: it reads all of both tables.
WITH chosen AS (
    SELECT staged.*, given.subject_id, given.overtaken
    FROM unnest(%(ordinals)s::integer[], %(subject_ids)s::bigint[], %(overtaken)s::boolean[])
        AS given (ordinal, subject_id, overtaken)
    JOIN pg_temp.holdfast_staged AS staged USING (ordinal)
),
named AS (
    SELECT key, min(stage.key_text) AS key_parts
    FROM {stage} AS stage
    JOIN chosen USING (key)
    WHERE stage.attempt = ANY(%(attempts)s::bigint[]) AND stage.reason IS NULL
    GROUP BY key
)
INSERT INTO holdfast.suppressed (
    batch_no, key, suppressed_at, subject_id, type, occurred_at, priority, cause, traceparent, key_parts, data
)
SELECT
    %(batch_no)s,
    key,
    %(at)s::timestamptz,
    chosen.subject_id,
    chosen.type,
    chosen.occurred_at,
    chosen.priority,
    (CASE WHEN chosen.overtaken THEN 'overtaken' ELSE 'repeated' END)::holdfast.suppressed_cause,
    coalesce(chosen.traceparent, %(traceparent)s),
    named.key_parts,
    substr(chosen.tail, %(before_data)s + 1, length(chosen.tail) - %(before_data)s - 1)
FROM chosen
JOIN named USING (key)
