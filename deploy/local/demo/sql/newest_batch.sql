-- Returns the last batch that the sink committed, to prove that Spark was killed after the commit.
-- Index: uq_batch_batch_no.
SELECT batch_id, entry_count FROM holdfast.batch ORDER BY batch_no DESC LIMIT 1
