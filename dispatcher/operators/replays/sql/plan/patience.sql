-- Raises the statement timeout for a plan of many entries, in this transaction only.
-- Needs no index.
SELECT set_config('statement_timeout', '10min', true), set_config('jit', 'off', true)
