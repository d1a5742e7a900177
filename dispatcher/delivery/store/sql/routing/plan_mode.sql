-- Sets whether the next statements of this transaction use custom or generic plans. A generic plan of routing may scan all keys
-- of the batches' days. Needs no index.
SELECT pg_catalog.set_config('plan_cache_mode', %(plans)s, true)
