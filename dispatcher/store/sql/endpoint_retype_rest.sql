-- Before an endpoint wants more types: its idle lanes pass all that is routed, every subject without a lane gets one that
-- stands there, and a lane that waits reaches up to there. So the types count from now on. Uses pk_lane, ix_batch_unrouted, ix_entry_batch_no; reads every subject.
INSERT INTO holdfast.lane AS lane (
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
ORDER BY s.id
ON CONFLICT (endpoint_id, subject_id) DO UPDATE
SET delivered_sequence = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN excluded.delivered_sequence
                              ELSE lane.delivered_sequence END,
    last_sequence = excluded.last_sequence
WHERE lane.last_sequence < excluded.last_sequence
