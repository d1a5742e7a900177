-- The hashes of the winning rows in order, one after another, in 256 pieces: a value has an end.
-- No index: it reads all of the stage.
SELECT string_agg(row_hash, ''::bytea ORDER BY row_hash) AS hashes
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[])
GROUP BY get_byte(row_hash, 0)
ORDER BY get_byte(row_hash, 0)
