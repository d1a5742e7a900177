-- The process ids of other sessions of a stream's sink on this database.
-- No index.
SELECT pid FROM pg_stat_activity
WHERE application_name = %(name)s AND datname = current_database() AND pid <> pg_backend_pid()
ORDER BY pid
