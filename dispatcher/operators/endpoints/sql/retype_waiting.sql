-- Before an endpoint's types change: lanes move past entries before their head that were never taken, so that the new types do
-- not select them, and reset the attempts of a head whose type is no longer taken. A dead letter of such a type holds no lane:
-- the lane moves past it, as nothing else would release it. Uses pk_lane, pk_entry, uq_dead_letter_open.
UPDATE holdfast.lane
SET delivered_sequence = f.delivered_sequence,
    due_at = CASE WHEN f.delivered_sequence < lane.last_sequence AND NOT f.held THEN coalesce(lane.due_at, now()) END,
    attempt = CASE WHEN f.wanted THEN lane.attempt ELSE 0 END,
    rescued = CASE WHEN f.wanted THEN lane.rescued ELSE 0 END,
    tried_since_us = CASE WHEN f.wanted THEN lane.tried_since_us END
FROM (
    SELECT l.subject_id, l.delivered_sequence AS before,
           CASE -- A person decides about a dead letter whose type is taken, or of which nothing is stored.
                WHEN d.sequence < h.sequence OR h.sequence IS NULL THEN coalesce(d.sequence - 1, p.delivered_sequence)
                WHEN d.sequence = h.sequence AND NOT w.wanted THEN d.sequence
                ELSE p.delivered_sequence END AS delivered_sequence,
           d.sequence IS NOT NULL AND (d.sequence IS DISTINCT FROM h.sequence OR w.wanted) AS held,
           w.wanted
    FROM holdfast.lane l
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.type
        FROM holdfast.entry e
        WHERE e.subject_id = l.subject_id
          AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
          AND e.created_at >= l.head_created_at - interval '1 hour'
          AND (%(before)s::text[] = '{}' OR e.type = ANY (%(before)s::text[]))
        ORDER BY e.sequence
        LIMIT 1
    ) h ON true
    LEFT JOIN LATERAL (
        SELECT o.sequence
        FROM holdfast.dead_letter o
        WHERE l.due_at IS NULL AND o.endpoint_id = l.endpoint_id AND o.subject_id = l.subject_id
          AND o.sequence > l.delivered_sequence AND o.resolution IS NULL
        ORDER BY o.sequence
        LIMIT 1
    ) d ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(%(after)s::text[] = '{}' OR h.type = ANY (%(after)s::text[]), false) AS wanted
    ) w
    CROSS JOIN LATERAL (
        -- With every type taken, the next sequence is the head; a missing one stays visible.
        SELECT CASE WHEN %(before)s::text[] = '{}' THEN l.delivered_sequence
                    ELSE coalesce(h.sequence - 1, l.last_sequence) END AS delivered_sequence
    ) p
    WHERE l.endpoint_id = %(endpoint_id)s AND l.delivered_sequence < l.last_sequence
) f
WHERE lane.endpoint_id = %(endpoint_id)s AND lane.subject_id = f.subject_id AND lane.token IS NULL
  -- A dead letter dismissed meanwhile has moved the lane.
  AND lane.delivered_sequence = f.before
