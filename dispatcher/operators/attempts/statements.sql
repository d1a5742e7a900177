-- name: list
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


-- name: newest
-- Attempts of all subjects between two moments, of one endpoint and outcome if given, the newest first, before a position.
-- Walks ix_attempt_finished_at backwards, partition by partition; pk_endpoint, pk_subject.
SELECT a.finished_at, a.endpoint_id, p.name AS endpoint, a.subject_id, s.name AS subject, a.sequence, a.number,
       a.outcome::text AS outcome, a.status, a.duration_ms, a.error, a.response, a.receipt, a.retry_at
FROM (
    SELECT *
    FROM holdfast.attempt a
    WHERE a.finished_at <= %(up_to)s::timestamptz AND a.finished_at >= %(since)s::timestamptz
      AND a.finished_at < %(until)s::timestamptz
      AND (a.finished_at, a.endpoint_id, a.subject_id, a.sequence, a.number)
        < (%(up_to)s::timestamptz, %(before_endpoint_id)s::integer, %(before_subject_id)s::bigint,
           %(before_sequence)s::bigint, %(before_number)s::integer)
      AND (%(endpoint_id)s::integer IS NULL OR a.endpoint_id = %(endpoint_id)s::integer)
      AND (%(outcome)s::holdfast.outcome IS NULL OR a.outcome = %(outcome)s::holdfast.outcome)
    ORDER BY a.finished_at DESC, a.endpoint_id DESC, a.subject_id DESC, a.sequence DESC, a.number DESC
    LIMIT %(limit)s
) a
JOIN holdfast.endpoint p ON p.id = a.endpoint_id
JOIN holdfast.subject s ON s.id = a.subject_id
ORDER BY a.finished_at DESC, a.endpoint_id DESC, a.subject_id DESC, a.sequence DESC, a.number DESC


-- name: scan_end
-- The moment of the Nth newest attempt between two moments; no row where there are fewer.
-- Walks ix_attempt_finished_at backwards, partition by partition.
SELECT finished_at
FROM holdfast.attempt
WHERE finished_at < %(up_to)s::timestamptz AND finished_at >= %(since)s::timestamptz
  AND finished_at < %(until)s::timestamptz
ORDER BY finished_at DESC
OFFSET %(scan)s
LIMIT 1


-- name: undelivered
-- Attempts of all subjects with one outcome other than `delivered`, between two moments, of one endpoint if given, the newest
-- first, before a position. Uses ix_attempt_undelivered of each endpoint backwards, partition by partition; pk_subject.
SELECT a.finished_at, a.endpoint_id, p.name AS endpoint, a.subject_id, s.name AS subject, a.sequence, a.number,
       a.outcome::text AS outcome, a.status, a.duration_ms, a.error, a.response, a.receipt, a.retry_at
FROM (
    SELECT a.*
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        SELECT *
        FROM holdfast.attempt a
        WHERE a.endpoint_id = p.id AND a.outcome = %(outcome)s::holdfast.outcome AND a.outcome <> 'delivered'
          AND a.finished_at <= %(up_to)s::timestamptz AND a.finished_at >= %(since)s::timestamptz
          AND a.finished_at < %(until)s::timestamptz
          AND (a.finished_at, a.endpoint_id, a.subject_id, a.sequence, a.number)
            < (%(up_to)s::timestamptz, %(before_endpoint_id)s::integer, %(before_subject_id)s::bigint,
               %(before_sequence)s::bigint, %(before_number)s::integer)
        ORDER BY a.finished_at DESC, a.subject_id DESC, a.sequence DESC, a.number DESC
        LIMIT %(limit)s
    ) a
    WHERE %(endpoint_id)s::integer IS NULL OR p.id = %(endpoint_id)s::integer
    ORDER BY a.finished_at DESC, a.endpoint_id DESC, a.subject_id DESC, a.sequence DESC, a.number DESC
    LIMIT %(limit)s
) a
JOIN holdfast.endpoint p ON p.id = a.endpoint_id
JOIN holdfast.subject s ON s.id = a.subject_id
ORDER BY a.finished_at DESC, a.endpoint_id DESC, a.subject_id DESC, a.sequence DESC, a.number DESC
