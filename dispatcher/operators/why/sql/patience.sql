-- Limits how long this transaction waits for a locked table.
-- Needs no index.
SELECT set_config('lock_timeout', %(lock_timeout)s, true)
