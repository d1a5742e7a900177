-- Takes on the dispatcher's role and bounds everything that could hang, of this transaction only: a session may be a
-- pooler's, and the next transaction somebody else's. Plans are kept to index walks: these tables change faster than
-- their statistics, and a plan that flips to scanning a queue is an outage. The parameter says whether a session keeps them.
-- From here on names are found in pg_catalog alone, whatever else the login's search_path names. Needs no index.
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
