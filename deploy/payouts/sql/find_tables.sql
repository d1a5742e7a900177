-- Whether the tables are there; they are created in one transaction, so the last one speaks for all.
-- No index: a look into the catalogue, which waits for no lock on the tables.
SELECT to_regclass('payouts.delivery_log') IS NOT NULL AS there
