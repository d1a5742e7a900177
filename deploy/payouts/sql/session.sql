-- Sets time limits for statements, lock waits and idle transactions, so that nothing hangs, and restricts search_path to
-- pg_catalog. No index: settings of the session.
SELECT pg_catalog.set_config('statement_timeout', '10s', false),
       pg_catalog.set_config('lock_timeout', '2s', false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
       pg_catalog.set_config('timezone', 'UTC', false),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
