-- name: backend
-- The server process of this connection; runs before the search_path is restricted to pg_catalog.
-- Needs no index.
SELECT pg_catalog.pg_backend_pid() AS pid


-- name: session
-- Sets the dispatcher's role and time limits, for this transaction only: with a pooler, the next one may run in another
-- session. Plans use indexes only: these tables change faster than their statistics, and a plan that switches to scanning a
-- queue is an outage. The parameter says whether plans are kept. From here on names resolve in pg_catalog only, regardless
-- of the login's search_path. Needs no index.
SELECT
    pg_catalog.set_config('role', 'holdfast_dispatcher', true),
    pg_catalog.set_config('statement_timeout', '30s', true),
    pg_catalog.set_config('lock_timeout', '5s', true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', '10s', true),
    pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_hashjoin', 'off', true),
    pg_catalog.set_config('enable_mergejoin', 'off', true),
    pg_catalog.set_config('jit', 'off', true),
    pg_catalog.set_config('plan_cache_mode', %(plans)s, true),
    pg_catalog.set_config('datestyle', 'ISO', true),
    pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)


-- name: warm_patience
-- Lets the warm-up of a new connection wait for no lock: a caller waits for the connection, and a statement that is not
-- prepared yet is only slower at first. Needs no index.
SELECT set_config('lock_timeout', '100ms', true)
