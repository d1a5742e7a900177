-- Accepts another query id from now on. A run of the old one is refused at its next batch, because
-- the sink compares the query id under the same row lock.
UPDATE holdfast.stream s
SET query_id = %(query_id)s, adopted_at = clock_timestamp()
FROM (SELECT name, query_id FROM holdfast.stream WHERE name = %(stream)s FOR UPDATE) AS old
WHERE s.name = old.name
RETURNING s.name, s.query_id, old.query_id AS previous_query_id, s.epoch
