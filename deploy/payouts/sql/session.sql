-- Bounds every statement, lock wait and idle transaction of a connection, so that nothing hangs for ever, and finds names in
-- pg_catalog alone. No index: settings of the session.
SELECT pg_catalog.set_config('statement_timeout', '10s', false),
       pg_catalog.set_config('lock_timeout', '2s', false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
       pg_catalog.set_config('timezone', 'UTC', false),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
