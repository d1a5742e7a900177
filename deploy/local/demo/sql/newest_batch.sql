-- The last batch that the sink committed; tells that Spark was killed after the commit, not before.
-- Index: uq_batch_batch_no.
SELECT batch_id, entry_count FROM holdfast.batch ORDER BY batch_no DESC LIMIT 1
