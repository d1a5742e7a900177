-- Gives this transaction enough memory to count many attempts without temporary files.
-- Needs no index.
SELECT set_config('work_mem', '32MB', true)
