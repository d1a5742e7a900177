-- Attempts of a subject, of one sequence or endpoint if given, the newest sequence first, before a position if given.
-- Uses pk_attempt of each endpoint backwards, in the partitions between the two times.
SELECT p.id AS endpoint_id, p.name AS endpoint, a.sequence, a.number, a.finished_at, a.outcome::text AS outcome, a.status,
       a.duration_ms, a.error, a.response, a.receipt, a.retry_at
FROM holdfast.endpoint p
CROSS JOIN LATERAL (
    SELECT *
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s
      AND a.sequence BETWEEN %(first_sequence)s AND %(last_sequence)s
      AND a.finished_at >= %(since)s::timestamptz AND a.finished_at < %(until)s::timestamptz
      AND (%(outcome)s::holdfast.outcome IS NULL OR a.outcome = %(outcome)s::holdfast.outcome)
      AND (%(before_sequence)s::bigint IS NULL
           OR (a.sequence, a.number, a.endpoint_id)
            < (%(before_sequence)s::bigint, %(before_number)s::integer, %(before_endpoint_id)s::integer))
    ORDER BY a.sequence DESC, a.number DESC, a.finished_at DESC
    LIMIT %(limit)s
) a
WHERE %(endpoint_id)s::integer IS NULL OR p.id = %(endpoint_id)s::integer
ORDER BY a.sequence DESC, a.number DESC, p.id DESC
LIMIT %(limit)s
