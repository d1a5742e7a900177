-- Dead rows of the tables that deliveries and batches change in place, and the seconds since the last VACUUM of each by
-- autovacuum or a person; null: none since the statistics began. Uses pg_class_oid_index.
SELECT c.relname AS name, pg_stat_get_dead_tuples(c.oid) AS dead_rows,
       extract(epoch FROM now() - greatest(
           pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid)
       ))::double precision AS vacuum_age_seconds
FROM pg_class c
WHERE c.oid = ANY (ARRAY[
    'holdfast.lane'::regclass, 'holdfast.endpoint_pace'::regclass, 'holdfast.replay_item'::regclass,
    'holdfast.batch'::regclass, 'holdfast.subject'::regclass, 'holdfast.transition'::regclass
]::oid[])
