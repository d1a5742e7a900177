-- Serializes upgrades of this database: a second one waits here until the first has committed.
-- Index: none; the advisory lock is released with the transaction.
SELECT pg_advisory_xact_lock(hashtext('holdfast.migrations'))
