-- The tables that are changed in place, by how much in them is dead: rows, versions that nobody sees any more, when that was
-- cleaned up last. Index: the catalogue's own.
SELECT relname AS name, n_live_tup AS live_rows, n_dead_tup AS dead_rows, pg_total_relation_size(relid) AS bytes,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at, last_autovacuum AS autovacuumed_at,
       greatest(last_analyze, last_autoanalyze) AS analyzed_at
FROM pg_stat_user_tables
WHERE schemaname = 'holdfast'
  AND relname IN ('lane', 'endpoint_pace', 'endpoint', 'subject', 'transition', 'batch', 'stream', 'dead_letter', 'quarantine',
                  'replay', 'replay_item', 'dispatcher_instance')
ORDER BY n_dead_tup DESC, relname
