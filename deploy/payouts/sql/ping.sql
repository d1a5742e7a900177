-- Proves that the database answers and that the tables are there.
-- Index: none; reads at most one row.
SELECT EXISTS (SELECT FROM payouts.hold) AS ready
