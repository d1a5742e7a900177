-- Between which numbers and moments the batches of a stream lie that have these ids, so that little is read; nulls where it has
-- none of them. Between them lie others, too: each checkpoint of a stream begins its ids anew, and what people repeat has its own.
-- Uses pk_batch of the stream.
SELECT min(batch_no) AS first_batch_no, max(batch_no) AS last_batch_no,
       min(written_at) AS first_written_at, max(written_at) AS last_written_at
FROM holdfast.batch
WHERE stream = %(stream)s
  AND batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0) AND coalesce(%(last_batch)s::bigint, 9223372036854775807)
