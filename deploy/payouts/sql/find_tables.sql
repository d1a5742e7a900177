-- Returns whether the tables and the newest index exist; they are created in one transaction.
-- No index: reads the catalogue, which does not wait for locks on the tables.
SELECT to_regclass('payouts.delivery_log') IS NOT NULL
   AND to_regclass('payouts.ix_inbox_received_at') IS NOT NULL AS there
