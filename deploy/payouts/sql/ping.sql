-- Checks that the database answers and that the tables exist.
-- Index: none; reads at most one row.
SELECT EXISTS (SELECT FROM payouts.hold) AS ready
