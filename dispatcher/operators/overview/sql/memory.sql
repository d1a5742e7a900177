-- Gives this transaction the memory to count many attempts without a file.
-- Needs no index.
SELECT set_config('work_mem', '32MB', true)
