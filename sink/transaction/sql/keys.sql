-- name: add_keys
-- Records the new keys, sorted so that two streams wait for each other in one direction only.
-- Index: pk_entry_key.
INSERT INTO holdfast.entry_key (key, content, batch_no)
SELECT key, content, %(batch_no)s
FROM unnest(%(keys)s::uuid[], %(contents)s::uuid[]) AS given (key, content)
ORDER BY key
ON CONFLICT (key) DO NOTHING


-- name: copy_keys
-- Streams new keys in sorted order, so that two streams wait for each other in one direction only;
-- fails where a key is known. Index: pk_entry_key.
COPY holdfast.entry_key (key, content, batch_no) FROM STDIN (FORMAT binary)


-- name: known_keys
-- Which of the batch's keys an older batch recorded, by position from 0, and whether their content
-- differs. Index: pk_entry_key.
SELECT given.position - 1 AS position, known.content <> given.content AS differs
FROM unnest(%(keys)s::uuid[], %(contents)s::uuid[]) WITH ORDINALITY
    AS given (key, content, position)
JOIN holdfast.entry_key AS known USING (key)
WHERE known.batch_no <> %(batch_no)s
