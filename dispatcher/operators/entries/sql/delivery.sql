-- The delivery of an entry at each endpoint that takes it, or that it was sent to: lane and head, an open dead letter,
-- attempts. Uses pk_lane, pk_endpoint_pace, uq_dead_letter_open, pk_attempt, pk_entry.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, r.breaker::text AS breaker, r.breaker_until,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until,
       l.delivered_sequence, l.last_sequence, l.due_at, l.lease_until, head.sequence AS head_sequence,
       d.reason::text AS dead_reason, d.detail AS dead_detail, d.died_at,
       tried.attempts, tried.delivered_at, tried.outcomes[1] AS last_outcome, tried.finished_at AS last_tried_at
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
LEFT JOIN LATERAL (
    SELECT e.sequence
    FROM holdfast.entry e
    WHERE e.subject_id = %(subject_id)s
      AND e.sequence > l.delivered_sequence AND e.sequence <= %(sequence)s
      -- Prunes partitions, as the claim does.
      AND e.created_at >= l.head_created_at - interval '1 hour'
      AND (p.types = '{}' OR e.type = ANY (p.types))
    ORDER BY e.sequence
    LIMIT 1
) head ON true
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = p.id AND d.subject_id = %(subject_id)s AND d.sequence = %(sequence)s AND d.resolution IS NULL
CROSS JOIN LATERAL (
    SELECT count(*) AS attempts, max(a.finished_at) AS finished_at,
           array_agg(a.outcome::text ORDER BY a.finished_at DESC) AS outcomes,
           min(a.finished_at) FILTER (WHERE a.outcome = 'delivered') AS delivered_at
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
      AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour'
) tried
WHERE tried.attempts > 0
   OR (p.types = '{}' OR %(type)s = ANY (p.types))
      AND (p.starts_after IS NULL OR %(batch_no)s > p.starts_after OR %(batch_no)s::bigint <@ p.starts_late)
ORDER BY p.name
