-- Which of the batch's keys an older batch recorded, by position from 0, and whether their content
-- differs. Index: pk_entry_key.
SELECT given.position - 1 AS position, known.content <> given.content AS differs
FROM unnest(%(keys)s::uuid[], %(contents)s::uuid[]) WITH ORDINALITY
    AS given (key, content, position)
JOIN holdfast.entry_key AS known USING (key)
WHERE known.batch_no <> %(batch_no)s
