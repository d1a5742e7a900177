-- How many routed entries of a stream each endpoint still has to get, dead letters among them.
-- Reads the lanes that are not at their end; uses pk_entry and uq_batch_batch_no for what is in them.
SELECT p.name AS endpoint, p.state::text AS state, count(*) AS undelivered, min(e.created_at) AS oldest_created_at,
       count(*) FILTER (WHERE d.id IS NOT NULL) AS dead_letters
FROM holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id
JOIN holdfast.entry e
  ON e.subject_id = l.subject_id
 AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
 -- Prunes partitions, as the claim does.
 AND e.created_at >= l.head_created_at - interval '1 hour'
 AND (p.types = '{}' OR e.type = ANY (p.types))
JOIN holdfast.batch b ON b.batch_no = e.batch_no AND b.stream = %(stream)s
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = l.endpoint_id AND d.subject_id = e.subject_id AND d.sequence = e.sequence
 AND d.resolution IS NULL
WHERE l.delivered_sequence < l.last_sequence
GROUP BY p.id
ORDER BY p.name
