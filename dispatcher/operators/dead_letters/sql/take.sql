-- Some dead letters with bodies, and the count (at most 1000) of entries that wait behind each that holds its lane.
-- Uses pk_dead_letter, pk_endpoint, pk_endpoint_pace, pk_subject, pk_lane, pk_entry.
SELECT d.id, p.name AS endpoint, s.name AS subject, d.sequence, d.key, e.type, d.reason::text AS reason, d.detail,
       d.attempts, d.created_at AS written_at, d.died_at, d.resolution::text AS resolution, d.resolved_at, d.resolved_by,
       coalesce(d.resolution IS NULL AND l.token IS NULL AND l.due_at IS NULL
                AND l.delivered_sequence < d.sequence, false) AS holds_lane,
       p.order_policy::text AS order_policy, p.state::text AS endpoint_state, d.window_waived,
       d.endpoint_id, d.subject_id, convert_from(e.body, 'UTF8') AS body, r.key_window_seconds,
       (SELECT count(*)
        FROM (
            SELECT FROM holdfast.entry w
            WHERE w.subject_id = d.subject_id AND w.sequence > d.sequence AND w.sequence <= l.last_sequence
              AND l.delivered_sequence < d.sequence
              -- Prunes partitions: a subject's created_at never falls.
              AND w.created_at >= d.created_at - interval '1 hour'
              AND (p.types = '{}' OR w.type = ANY (p.types))
            LIMIT 1000
        ) AS behind) AS waiting
FROM holdfast.dead_letter d
JOIN holdfast.endpoint p ON p.id = d.endpoint_id
JOIN holdfast.subject s ON s.id = d.subject_id
LEFT JOIN holdfast.lane l ON l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
LEFT JOIN holdfast.entry e
  ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
JOIN holdfast.endpoint_pace r ON r.endpoint_id = d.endpoint_id
WHERE d.id = ANY (%(ids)s::bigint[])
ORDER BY d.id
