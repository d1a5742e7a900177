-- Returns whether the tables and this version of the inbox's functions exist; they are created in one transaction.
-- No index: reads the catalogue, which does not wait for locks on the tables.
SELECT to_regclass('payouts.delivery_log') IS NOT NULL
   AND to_regproc('payouts.inbox_receive') IS NOT NULL AS there
