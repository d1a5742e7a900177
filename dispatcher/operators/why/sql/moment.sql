-- The database's clock, at the beginning of this transaction.
-- Needs no index.
SELECT now() AS at
