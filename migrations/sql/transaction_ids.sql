-- Returns the database of this server whose oldest rows are the oldest, in transactions: IDs are given out until it is vacuumed.
-- Index: none.
SELECT datname AS database, age(datfrozenxid) AS age, current_setting('autovacuum_freeze_max_age')::integer AS freeze_at
FROM pg_catalog.pg_database
ORDER BY age DESC, datname
LIMIT 1
