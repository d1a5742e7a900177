-- The streams in which batches of a query id were written.
-- Uses pk_batch once for each stream.
SELECT s.name FROM holdfast.stream s
WHERE EXISTS (SELECT FROM holdfast.batch b WHERE b.stream = s.name AND b.query_id = %(query_id)s)
ORDER BY s.name
