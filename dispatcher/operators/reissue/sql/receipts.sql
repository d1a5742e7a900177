-- When an entry was delivered to each endpoint, and the newest receipt.
-- Uses pk_attempt of the partitions from the entry's day on, pk_endpoint.
SELECT p.name AS endpoint, p.id AS endpoint_id, max(a.finished_at) AS delivered_at,
       (array_agg(a.receipt ORDER BY a.finished_at DESC) FILTER (WHERE a.receipt IS NOT NULL))[1] AS receipt
FROM holdfast.endpoint p
JOIN holdfast.attempt a
  ON a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
 AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour'
WHERE a.outcome = 'delivered'
GROUP BY p.id
ORDER BY p.name
