-- The newest deliveries of the last 24 h that a receiver answered with `stale`: it did not apply them.
-- Uses ix_attempt_stale of two days, pk_endpoint, pk_subject.
SELECT a.endpoint_id, p.name AS endpoint, s.name AS subject, a.sequence
FROM (
    SELECT endpoint_id, subject_id, sequence, finished_at
    FROM holdfast.attempt
    WHERE finished_at >= now() - interval '24 hours' AND receipt LIKE '%%"outcome":"stale"%%'
    ORDER BY finished_at DESC
    LIMIT %(most)s
) a
JOIN holdfast.endpoint p ON p.id = a.endpoint_id
JOIN holdfast.subject s ON s.id = a.subject_id
ORDER BY p.name, a.finished_at
