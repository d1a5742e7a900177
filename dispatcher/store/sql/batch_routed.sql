-- Marks batches as routed, in the transaction that made their lanes.
-- Uses uq_batch_batch_no.
UPDATE holdfast.batch
SET routed_at = now()
WHERE batch_no = ANY (%(batch_nos)s::bigint[])
