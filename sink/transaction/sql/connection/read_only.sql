-- What the transaction reads is of one moment, and it writes nothing. First statement of its transaction.
-- No index.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY
