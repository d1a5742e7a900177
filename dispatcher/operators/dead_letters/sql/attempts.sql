-- The newest attempts of an entry at an endpoint, the newest first.
-- Uses pk_attempt of the partitions from the entry's day on.
SELECT number, finished_at, outcome::text AS outcome, status, duration_ms, error, response
FROM holdfast.attempt
WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s AND sequence = %(sequence)s
  AND finished_at >= %(written_at)s::timestamptz - interval '1 hour'
ORDER BY finished_at DESC, number DESC
LIMIT %(limit)s
