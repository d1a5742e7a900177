-- The daily partitions of entry, attempt and suppressed, and whether a partition of entry was ever dropped.
-- Uses the catalogue's own indexes; reads operator_action once.
SELECT coalesce(array_agg(day ORDER BY day) FILTER (WHERE parent = 'entry'), '{}') AS entry_days,
       coalesce(array_agg(day ORDER BY day) FILTER (WHERE parent = 'attempt'), '{}') AS attempt_days,
       coalesce(array_agg(day ORDER BY day) FILTER (WHERE parent = 'suppressed'), '{}') AS suppressed_days,
       EXISTS (SELECT FROM holdfast.operator_action
               WHERE action = 'partition.drop' AND target LIKE 'entry\_%') AS dropped
FROM (
    SELECT p.relname AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_class p ON p.oid = i.inhparent
    WHERE p.relnamespace = 'holdfast'::regnamespace AND p.relname IN ('entry', 'attempt', 'suppressed')
      AND c.relname ~ ('^' || p.relname || '_[0-9]{8}$')
) days
