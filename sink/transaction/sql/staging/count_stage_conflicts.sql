-- How many entries of the winning attempts share the key, but not the content, of a promoted entry.
-- No index: it reads all of the stage.
SELECT count(*) AS count
FROM {stage} AS later
JOIN pg_temp.holdfast_staged AS staged USING (key)
WHERE later.attempt = ANY(%(attempts)s::bigint[]) AND (later.content, later.subject) <> (staged.content, staged.subject)
