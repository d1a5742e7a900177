-- Has what follows in this transaction planned for its very parameters: a plan for any batches of routing may walk over all
-- keys of the days they are in. Needs no index.
SELECT pg_catalog.set_config('plan_cache_mode', 'force_custom_plan', true)
