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
