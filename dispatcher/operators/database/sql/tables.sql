-- The tables with updates in place, those with most dead rows first: live and dead rows, last VACUUM and ANALYZE.
-- Uses the catalogue's own indexes.
SELECT relname AS name, n_live_tup AS live_rows, n_dead_tup AS dead_rows, pg_total_relation_size(relid) AS bytes,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at, last_autovacuum AS autovacuumed_at,
       greatest(last_analyze, last_autoanalyze) AS analyzed_at
FROM pg_stat_user_tables
WHERE schemaname = 'holdfast'
  AND relname IN ('lane', 'endpoint_pace', 'endpoint', 'subject', 'transition', 'batch', 'stream', 'dead_letter', 'quarantine',
                  'replay', 'replay_item', 'dispatcher_instance')
ORDER BY n_dead_tup DESC, relname
