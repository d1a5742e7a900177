-- The highest number of a batch; 0 where there is none.
-- Uses uq_batch_batch_no.
SELECT coalesce(max(batch_no), 0) AS batch_no FROM holdfast.batch
