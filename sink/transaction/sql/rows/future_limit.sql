-- The latest time that an entry may be dated, by the database's clock.
-- No index.
SELECT clock_timestamp() + %(tolerance)s::interval AS latest
