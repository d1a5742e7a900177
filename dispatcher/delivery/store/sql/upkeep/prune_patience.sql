-- Raises the time limits for reading a whole day; the transaction holds no lock that others wait for meanwhile.
-- Needs no index.
SELECT set_config('statement_timeout', '10min', true)
