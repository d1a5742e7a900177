-- How long this transaction waits for a table that somebody keeps from everybody.
-- Needs no index.
SELECT set_config('lock_timeout', %(lock_timeout)s, true)
