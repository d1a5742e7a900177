-- Before an endpoint takes more types: gives every subject without a lane one at the last routed entry, so that the new types
-- apply from now on. Routing is excluded. Uses pk_lane_key, ix_batch_unrouted, ix_entry_batch_no; reads every subject.
INSERT INTO holdfast.lane (
    endpoint_id, subject_id, delivered_sequence, last_sequence, priority, due_at, head_created_at
)
SELECT %(endpoint_id)s, s.id, place.sequence, place.sequence, 0, NULL,
       coalesce(u.created_at, s.last_created_at, now())
FROM holdfast.subject s
LEFT JOIN (
    SELECT e.subject_id, min(e.sequence) AS sequence, min(e.created_at) AS created_at
    FROM holdfast.batch b
    JOIN holdfast.entry e ON e.batch_no = b.batch_no AND e.created_at = b.written_at
    WHERE b.routed_at IS NULL
    GROUP BY e.subject_id
) u ON u.subject_id = s.id
CROSS JOIN LATERAL (SELECT coalesce(u.sequence - 1, s.last_sequence) AS sequence) place
WHERE place.sequence > 0
  AND NOT EXISTS (SELECT FROM holdfast.lane_key k WHERE k.endpoint_id = %(endpoint_id)s AND k.subject_id = s.id)
ORDER BY s.id
