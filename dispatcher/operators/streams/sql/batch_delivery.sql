-- The delivery of a batch's entries at each endpoint that takes some of them.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment, pk_lane, uq_dead_letter_open.
SELECT p.name AS endpoint, p.state::text AS state, count(*) AS entries,
       count(*) FILTER (WHERE d.id IS NULL AND coalesce(e.sequence <= l.delivered_sequence, false)) AS delivered,
       count(*) FILTER (WHERE d.id IS NULL AND NOT coalesce(e.sequence <= l.delivered_sequence, false)) AS waiting,
       count(d.id) AS dead_letters
FROM holdfast.entry e
JOIN holdfast.endpoint p
  ON (p.types = '{}' OR e.type = ANY (p.types))
 AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = e.subject_id
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = p.id AND d.subject_id = e.subject_id AND d.sequence = e.sequence AND d.resolution IS NULL
WHERE e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s
GROUP BY p.id
ORDER BY p.name
