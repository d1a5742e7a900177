-- Sets this session for a check: read-only, one process, custom plans for each range, sorts and hashes in memory.
-- Needs no index.
SELECT set_config('default_transaction_read_only', 'on', false), set_config('jit', 'off', false),
       set_config('work_mem', '64MB', false), set_config('max_parallel_workers_per_gather', '0', false),
       set_config('plan_cache_mode', 'force_custom_plan', false)
