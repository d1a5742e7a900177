-- Entries of an endpoint that are leased now and were not tried in a time range: their first answer is pending.
-- Uses ix_lane_leased (a row for each request in flight), pk_subject, pk_entry, pk_attempt.
SELECT s.name AS subject, e.sequence, e.key, sha256(e.body) AS body_sha256
FROM holdfast.lane l
JOIN holdfast.subject s ON s.id = l.subject_id
JOIN holdfast.entry e
  ON e.subject_id = l.subject_id
 AND e.sequence > l.delivered_sequence AND e.sequence <= l.claimed_sequence
 -- Prunes partitions, as the claim does.
 AND e.created_at >= l.head_created_at - interval '1 hour'
WHERE l.token IS NOT NULL AND l.endpoint_id = %(endpoint_id)s AND l.subject_id <= %(last_subject)s
  AND l.subject_id >= %(first_subject)s
  AND NOT EXISTS (
      SELECT FROM holdfast.attempt a
      WHERE a.endpoint_id = l.endpoint_id AND a.subject_id = l.subject_id AND a.sequence = e.sequence
        AND a.finished_at >= %(since)s AND a.finished_at < %(until)s)
ORDER BY l.subject_id, e.sequence
