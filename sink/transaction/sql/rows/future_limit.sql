-- The latest occurred_at that is accepted, by the database's clock.
-- No index.
SELECT clock_timestamp() + %(tolerance)s::interval AS latest
