-- Makes the transaction read one snapshot and write nothing. First statement of its transaction.
-- Needs no index.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY
