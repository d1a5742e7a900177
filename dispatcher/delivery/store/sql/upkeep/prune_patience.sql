-- Lets this transaction look through a whole day; it holds no lock that anybody waits for meanwhile.
-- Needs no index.
SELECT set_config('statement_timeout', '10min', true)
