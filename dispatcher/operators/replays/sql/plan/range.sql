-- The range of batch numbers and moments of a stream's batches with these ids, which bounds later reads; nulls without any.
-- Other batches lie in it too: each checkpoint of a stream numbers from 0, and reissues have ids of their own.
-- Uses pk_batch of the stream.
SELECT min(batch_no) AS first_batch_no, max(batch_no) AS last_batch_no,
       min(written_at) AS first_written_at, max(written_at) AS last_written_at
FROM holdfast.batch
WHERE stream = %(stream)s
  AND batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0) AND coalesce(%(last_batch)s::bigint, 9223372036854775807)
