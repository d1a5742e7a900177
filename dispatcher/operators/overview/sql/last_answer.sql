-- The subject of a lane, and the newest attempt after its last delivery. Uses pk_subject, pk_attempt; the time of the lane's head
-- prunes partitions.
SELECT s.name AS subject, tried.number, tried.outcome, tried.status, tried.error
FROM holdfast.subject s
LEFT JOIN LATERAL (
    SELECT a.number, a.outcome::text AS outcome, a.status, a.error
    FROM holdfast.attempt a
    WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = s.id AND a.sequence > %(delivered_sequence)s
      AND a.finished_at >= %(head_created_at)s::timestamptz - interval '1 hour'
    ORDER BY a.sequence DESC, a.number DESC, a.finished_at DESC
    LIMIT 1
) tried ON true
WHERE s.id = %(subject_id)s
