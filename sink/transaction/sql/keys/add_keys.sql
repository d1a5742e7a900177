-- Records the new keys, sorted so that two streams wait for each other in one direction only.
-- Index: pk_entry_key.
INSERT INTO holdfast.entry_key (key, content, batch_no)
SELECT key, content, %(batch_no)s
FROM unnest(%(keys)s::uuid[], %(contents)s::uuid[]) AS given (key, content)
ORDER BY key
ON CONFLICT (key) DO NOTHING
