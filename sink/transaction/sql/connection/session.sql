-- Sets the sink's role and bounds every wait, for this transaction only: the session may be a
-- pooler's, and the next transaction another client's. search_path is pg_catalog alone, so every name
-- is qualified. Turns synchronous_commit on where it is off by default. The keepalives detect a lost
-- driver host. No index.
SELECT
    pg_catalog.pg_is_in_recovery()
        OR pg_catalog.current_setting('default_transaction_read_only')::boolean AS read_only,
    (pg_catalog.clock_timestamp() AT TIME ZONE 'UTC')::pg_catalog.date AS today,
    pg_catalog.set_config('lock_timeout', %(lock_ms)s, true),
    pg_catalog.set_config('statement_timeout', %(statement_ms)s, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', %(idle_ms)s, true),
    pg_catalog.set_config('tcp_keepalives_idle', '10', true),
    pg_catalog.set_config('tcp_keepalives_interval', '5', true),
    pg_catalog.set_config('tcp_keepalives_count', '3', true),
    pg_catalog.set_config('timezone', 'UTC', true),
    pg_catalog.set_config('datestyle', 'ISO', true),
    pg_catalog.set_config('client_encoding', 'UTF8', true),
    pg_catalog.set_config(
        'synchronous_commit',
        CASE
            WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off'
                THEN 'on'
            ELSE pg_catalog.current_setting('synchronous_commit')
        END,
        true
    ),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true),
    pg_catalog.set_config('role', %(role)s, true)
