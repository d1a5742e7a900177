-- Dead letters with bodies, the oldest first; read through a cursor in one snapshot.
-- Uses pk_dead_letter, or uq_dead_letter_open for open ones; pk_subject, pk_lane, pk_entry of the one partition.
SELECT d.id, p.name AS endpoint, s.name AS subject, d.sequence, d.key, e.type, d.reason::text AS reason, d.detail,
       d.attempts, d.created_at AS written_at, d.died_at, d.resolution::text AS resolution, d.resolved_at, d.resolved_by,
       coalesce(d.resolution IS NULL AND l.token IS NULL AND l.due_at IS NULL
                AND l.delivered_sequence < d.sequence, false) AS holds_lane,
       convert_from(e.body, 'UTF8') AS body
FROM holdfast.dead_letter d
JOIN holdfast.endpoint p ON p.id = d.endpoint_id
JOIN holdfast.subject s ON s.id = d.subject_id
LEFT JOIN holdfast.lane l ON l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
LEFT JOIN holdfast.entry e
  ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
WHERE (%(endpoint_id)s::integer IS NULL OR d.endpoint_id = %(endpoint_id)s::integer)
  AND (%(subject_id)s::bigint IS NULL OR d.subject_id = %(subject_id)s::bigint)
  AND (%(reason)s::holdfast.dead_reason IS NULL OR d.reason = %(reason)s::holdfast.dead_reason)
  AND (NOT %(open)s OR d.resolution IS NULL) AND (NOT %(resolved)s OR d.resolution IS NOT NULL)
ORDER BY d.id
