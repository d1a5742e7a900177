-- Locks a lane and returns its state: its position, the first stored entry after it, whether the endpoint takes only some types.
-- Uses uq_endpoint_name, uq_subject_name, pk_lane, pk_entry.
SELECT l.endpoint_id, l.subject_id, l.delivered_sequence, l.last_sequence, l.token IS NOT NULL AS leased,
       l.due_at IS NOT NULL AS due, p.types <> '{}' AS chooses, (
           SELECT e.sequence
           FROM holdfast.entry e
           WHERE e.subject_id = l.subject_id
             AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
           ORDER BY e.sequence
           LIMIT 1
       ) AS found
FROM holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id
JOIN holdfast.subject s ON s.id = l.subject_id
WHERE p.name = %(endpoint)s AND s.name = %(subject)s
FOR NO KEY UPDATE OF l
