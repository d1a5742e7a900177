-- The database's clock.
-- Needs no index.
SELECT clock_timestamp() AS at
