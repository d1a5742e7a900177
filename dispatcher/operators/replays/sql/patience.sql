-- Lets a plan of many entries take its time, in this transaction only.
-- Needs no index.
SELECT set_config('statement_timeout', '10min', true), set_config('jit', 'off', true)
