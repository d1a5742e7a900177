-- The state of an entry at each endpoint, and everything that may hold it: endpoint and pace, lane and head, dead letter,
-- attempts. Uses pk_endpoint_pace, pk_lane, ix_lane_due, ix_lane_leased, uq_dead_letter_open, pk_attempt, pk_entry.
SELECT p.id AS endpoint_id, p.name AS endpoint, p.state::text AS endpoint_state, p.state_reason, p.types, p.starts_at,
       %(batch_no)s <= p.starts_after AND NOT %(batch_no)s::bigint <@ p.starts_late AS before_start,
       p.created_at AS added_at, p.updated_at AS changed_at, p.order_policy::text AS order_policy, p.rate_per_second,
       p.secret_refs, p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref,
       r.breaker::text AS breaker, r.breaker_until, r.breaker_reason, r.held_until, r.held_by, r.paid_until,
       l.delivered_sequence AS lane_delivered_sequence, l.last_sequence, l.attempt AS lane_attempt, l.due_at, l.lease_until,
       head.sequence AS head_sequence,
       d.id AS dead_letter, d.reason::text AS dead_reason, d.detail AS dead_detail, d.died_at, d.attempts AS dead_attempts,
       coalesce(l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < %(sequence)s, false) AS lane_stopped,
       coalesce(tried.number, 0) AS attempts, tried.number AS last_number, tried.outcome AS last_outcome,
       tried.status AS last_status, tried.error AS last_error, tried.finished_at AS last_tried_at,
       done.number AS delivered_number, done.status AS delivered_status, done.finished_at AS delivered_at, done.receipt,
       before.lanes AS due_before, leased.lanes AS leased_lanes,
       -- The transactions that lock or change one of these rows now.
       array_remove(ARRAY[l.xmax::text, r.xmax::text, p.xmax::text], '0') AS transactions
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
LEFT JOIN LATERAL (
    SELECT a.number, a.outcome::text AS outcome, a.status, a.error, a.finished_at
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
      AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour'
    ORDER BY a.number DESC, a.finished_at DESC
    LIMIT 1
) tried ON true
LEFT JOIN LATERAL (
    SELECT a.number, a.status, a.finished_at, a.receipt
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
      AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour' AND a.outcome = 'delivered'
    ORDER BY a.number, a.finished_at
    LIMIT 1
) done ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes
    FROM (
        SELECT FROM holdfast.lane o
        WHERE o.endpoint_id = p.id AND o.priority = l.priority AND o.token IS NULL AND o.due_at < least(l.due_at, now())
        LIMIT %(due_before_max)s
    ) earlier
) before
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes
    FROM holdfast.lane o
    WHERE o.endpoint_id = p.id AND o.token IS NOT NULL AND o.lease_until > now()
) leased
WHERE %(endpoint_id)s::integer IS NULL OR p.id = %(endpoint_id)s::integer
ORDER BY p.name
