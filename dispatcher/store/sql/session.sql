-- Takes on the dispatcher's role and bounds everything that could hang. Plans are kept to index walks: these tables
-- change faster than their statistics, and a plan that flips to scanning a queue is an outage. Needs no index.
SELECT
    set_config('role', %(role)s, false),
    set_config('statement_timeout', '30s', false),
    set_config('lock_timeout', '5s', false),
    set_config('idle_in_transaction_session_timeout', '10s', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    set_config('jit', 'off', false),
    set_config('datestyle', 'ISO', false)
