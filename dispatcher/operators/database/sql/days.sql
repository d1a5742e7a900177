-- The daily partitions of entry and attempt, the newest first: estimated rows and size.
-- Uses the catalogue's own indexes.
SELECT p.relname AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       greatest(s.n_live_tup, c.reltuples::bigint, 0) AS rows, pg_total_relation_size(c.oid) AS bytes
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_class p ON p.oid = i.inhparent
LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE p.oid IN ('holdfast.entry'::regclass, 'holdfast.attempt'::regclass)
  AND c.relkind = 'r' AND c.relname ~ ('^' || p.relname || '_[0-9]{8}$')
ORDER BY 2 DESC, 1
LIMIT %(limit)s
