-- One upgrade of this database at a time: a second one waits here until the first has committed.
-- Index: none; the lock lives in memory and ends with the transaction.
SELECT pg_advisory_xact_lock(hashtext('holdfast.migrations'))
