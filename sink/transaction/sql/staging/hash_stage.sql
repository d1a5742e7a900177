-- The hashes of the winning rows in order, concatenated in up to 256 parts: a value is limited to 1 GB.
-- No index: it reads all of the stage.
SELECT string_agg(row_hash, ''::bytea ORDER BY row_hash) AS hashes
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[])
GROUP BY get_byte(row_hash, 0)
ORDER BY get_byte(row_hash, 0)
