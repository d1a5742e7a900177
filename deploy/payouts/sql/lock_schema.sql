-- Serializes the creation of the tables, so that concurrent first starts do not race.
-- No index: waits for a transaction-level advisory lock.
SELECT pg_advisory_xact_lock(hashtextextended('payouts schema', 0))
