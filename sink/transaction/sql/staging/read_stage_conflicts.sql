-- The entries that count_stage_conflicts counts, as rows of `prepared.ENTRIES`, in the order of entries.
-- No index: it reads all of the stage.
SELECT
    later.subject, later.type, later.key_text, later.key, later.occurred_at, later.priority,
    later.traceparent, later.tail
FROM {stage} AS later
JOIN pg_temp.holdfast_staged AS staged USING (key)
WHERE later.attempt = ANY(%(attempts)s::bigint[]) AND (later.content, later.subject) <> (staged.content, staged.subject)
ORDER BY
    later.subject COLLATE "C", later.occurred_at, later.key_text COLLATE "C",
    later.type COLLATE "C", later.tail COLLATE "C", later.priority, later.traceparent COLLATE "C"
