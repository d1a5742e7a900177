-- Whether all tables are there, and the newest index; what is made together is there together.
-- No index: a look into the catalogue, which waits for no lock on the tables.
SELECT to_regclass('payouts.delivery_log') IS NOT NULL
   AND to_regclass('payouts.ix_inbox_received_at') IS NOT NULL AS there
