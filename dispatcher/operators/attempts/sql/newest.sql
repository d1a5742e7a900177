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
