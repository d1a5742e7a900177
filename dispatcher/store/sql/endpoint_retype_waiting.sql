-- Before an endpoint's types change: lanes pass what stands before their head and was never wanted, so that it is not wanted
-- later, and forget the attempts of a head that is wanted no more. Uses pk_lane, pk_entry.
UPDATE holdfast.lane
SET delivered_sequence = f.delivered_sequence,
    due_at = CASE WHEN f.delivered_sequence < lane.last_sequence THEN lane.due_at END,
    attempt = CASE WHEN f.wanted THEN lane.attempt ELSE 0 END,
    rescued = CASE WHEN f.wanted THEN lane.rescued ELSE 0 END,
    tried_since_us = CASE WHEN f.wanted THEN lane.tried_since_us END
FROM (
    SELECT l.subject_id,
           -- Where every type was wanted, the next sequence is the head; if it is missing, that stays visible.
           CASE WHEN %(before)s::text[] = '{}' THEN l.delivered_sequence
                ELSE coalesce(h.sequence - 1, l.last_sequence) END AS delivered_sequence,
           coalesce(%(after)s::text[] = '{}' OR h.type = ANY (%(after)s::text[]), false) AS wanted
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
    WHERE l.endpoint_id = %(endpoint_id)s AND l.delivered_sequence < l.last_sequence
) f
WHERE lane.endpoint_id = %(endpoint_id)s AND lane.subject_id = f.subject_id AND lane.token IS NULL
