-- Returns the session's settings that decide whether an acknowledged commit survives a crash.
-- Index: none.
SELECT
    current_setting('server_version_num')::integer AS version,
    pg_is_in_recovery() AS standby,
    current_setting('transaction_read_only') = 'on' AS read_only,
    current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    pg_encoding_to_char(encoding) AS encoding
FROM pg_catalog.pg_database
WHERE datname = current_database()
