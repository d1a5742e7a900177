-- The highest batch number; 0 without any.
-- Uses uq_batch_batch_no.
SELECT coalesce(max(batch_no), 0) AS batch_no FROM holdfast.batch
