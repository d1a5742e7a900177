-- Says whether what follows in this transaction is planned for its very parameters or for any. For routing a plan for any batches
-- may walk over all keys of the days they are in. Needs no index.
SELECT pg_catalog.set_config('plan_cache_mode', %(plans)s, true)
