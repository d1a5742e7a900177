-- The database's clock, which decides when a lane is due and when a lease ends.
-- Index: none.
SELECT clock_timestamp()
