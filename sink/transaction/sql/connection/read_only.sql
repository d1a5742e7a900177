-- One snapshot for the whole transaction, which writes nothing. First statement of its transaction.
-- No index.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY
