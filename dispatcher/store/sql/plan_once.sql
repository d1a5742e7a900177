-- Has what follows in this transaction run by a plan that was made before, where that is: for a batch of a few decisions,
-- planning takes several times as long as routing. Needs no index.
SELECT pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)
