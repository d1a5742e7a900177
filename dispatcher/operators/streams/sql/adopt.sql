-- Adopts another query id. A run of the old one is refused at its next batch, because the sink compares the query id under the
-- same row lock. Uses pk_stream.
UPDATE holdfast.stream
SET query_id = %(query_id)s, adopted_at = clock_timestamp()
WHERE name = %(stream)s
RETURNING name, query_id, epoch, adopted_at
