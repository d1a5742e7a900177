-- Lets one service at a time create the tables, so that two first starts do not race.
-- No index: an advisory lock of the transaction, waited for.
SELECT pg_advisory_xact_lock(hashtextextended('payouts schema', 0))
