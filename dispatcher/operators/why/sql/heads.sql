-- What to explain of a subject at each endpoint: the head of its lane, else the first entry of an unrouted batch, else the last
-- delivery. Uses pk_lane, pk_entry, ix_batch_unrouted, uq_batch_batch_no, pk_attempt.
SELECT p.id AS endpoint_id, p.name AS endpoint,
       -- With all types taken, a missing sequence is a gap.
       coalesce(l.delivered_sequence < l.last_sequence, false) AND p.types = '{}' AS waits,
       l.delivered_sequence AS lane_delivered_sequence,
       coalesce(head.sequence, coming.sequence) AS sequence,
       done.sequence AS delivered_sequence, done.number AS delivered_number, done.status AS delivered_status,
       done.finished_at AS delivered_at, done.receipt
FROM holdfast.endpoint p
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
LEFT JOIN LATERAL (
    SELECT e.sequence
    FROM holdfast.entry e
    WHERE e.subject_id = %(subject_id)s
      AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
      -- Prunes partitions, as the claim does.
      AND e.created_at >= l.head_created_at - interval '1 hour'
      AND (p.types = '{}' OR e.type = ANY (p.types))
    ORDER BY e.sequence
    LIMIT 1
) head ON true
LEFT JOIN LATERAL (
    SELECT e.sequence
    FROM holdfast.entry e
    JOIN holdfast.batch b ON b.batch_no = e.batch_no AND b.routed_at IS NULL
    WHERE head.sequence IS NULL AND e.subject_id = %(subject_id)s AND e.sequence > coalesce(l.last_sequence, 0)
      AND e.created_at >= (SELECT min(u.written_at) FROM holdfast.batch u WHERE u.routed_at IS NULL)
      AND (p.types = '{}' OR e.type = ANY (p.types))
      AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    ORDER BY e.sequence
    LIMIT 1
) coming ON true
LEFT JOIN LATERAL (
    SELECT a.sequence, a.number, a.status, a.finished_at, a.receipt
    FROM holdfast.attempt a
    WHERE head.sequence IS NULL AND coming.sequence IS NULL
      AND a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.outcome = 'delivered'
    ORDER BY a.sequence DESC, a.number DESC, a.finished_at DESC
    LIMIT 1
) done ON true
WHERE %(endpoint_id)s::integer IS NULL OR p.id = %(endpoint_id)s::integer
ORDER BY p.name
