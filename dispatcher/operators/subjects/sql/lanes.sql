-- Every lane of a subject: its position, head, due time, lease, and what stops it.
-- Uses pk_lane of each endpoint, pk_endpoint_pace, pk_entry, uq_dead_letter_open.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, p.order_policy::text AS order_policy,
       CASE WHEN l.token IS NOT NULL THEN 'leased'
            WHEN l.due_at IS NOT NULL THEN 'due'
            WHEN l.delivered_sequence < l.last_sequence THEN 'stopped'
            ELSE 'idle' END AS state,
       CASE WHEN l.delivered_sequence = l.last_sequence THEN NULL
            WHEN l.token IS NOT NULL THEN 'behind'
            WHEN l.due_at IS NULL THEN 'stopped'
            WHEN l.attempt > 0 THEN 'retrying'
            ELSE 'behind' END AS held,
       l.delivered_sequence, l.last_sequence, waiting.entries AS waiting,
       head.sequence AS head_sequence, head.key AS head_key, head.type AS head_type, head.created_at AS head_written_at,
       l.attempt, l.rescued, l.priority, l.due_at, l.lease_until,
       d.id AS dead_letter, d.reason::text AS dead_reason, d.died_at,
       r.breaker::text AS breaker, r.breaker_until, CASE WHEN r.held_until > now() THEN r.held_until END AS held_until
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
CROSS JOIN LATERAL (
    SELECT *
    FROM holdfast.lane l
    WHERE l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
    LIMIT 1
) l
LEFT JOIN LATERAL (
    SELECT e.sequence, e.key, e.type, e.created_at
    FROM holdfast.entry e
    WHERE e.subject_id = %(subject_id)s AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
      -- Prunes partitions, as the claim does.
      AND e.created_at >= l.head_created_at - interval '1 hour'
      AND (p.types = '{}' OR e.type = ANY (p.types))
    ORDER BY e.sequence
    LIMIT 1
) head ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS entries
    FROM (
        SELECT
        FROM holdfast.entry e
        WHERE e.subject_id = %(subject_id)s AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
          AND e.created_at >= l.head_created_at - interval '1 hour'
          AND (p.types = '{}' OR e.type = ANY (p.types))
        ORDER BY e.sequence
        LIMIT %(waiting_max)s
    ) counted
) waiting
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = p.id AND d.subject_id = %(subject_id)s AND d.sequence = head.sequence AND d.resolution IS NULL
ORDER BY p.name
