-- Before an endpoint takes more types: its idle lanes move past everything routed, and waiting lanes extend up to there. The
-- lanes are locked (hold.sql). Uses pk_lane, ix_batch_unrouted, ix_entry_batch_no; reads every subject.
UPDATE holdfast.lane
SET delivered_sequence = CASE WHEN lane.delivered_sequence = lane.last_sequence THEN routed.sequence
                              ELSE lane.delivered_sequence END,
    last_sequence = routed.sequence
FROM (
    SELECT s.id AS subject_id, place.sequence
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
) routed
WHERE lane.endpoint_id = %(endpoint_id)s AND lane.subject_id = routed.subject_id AND lane.last_sequence < routed.sequence
