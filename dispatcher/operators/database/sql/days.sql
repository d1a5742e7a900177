-- The days that entry and attempt have a partition for, the newest first: how many rows there are about, and how large it is.
-- Index: the catalogue's own.
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
