-- Returns the database's clock, which decides when a lane is due and when a lease expires.
-- Index: none.
SELECT clock_timestamp()
