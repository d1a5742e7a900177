-- Makes lanes idle for which a claim found no entry of their endpoint, unless entries were routed to them since: up to
-- last_sequence there is none to send, or, if the endpoint takes every type, entries are missing and the lane waits.
-- Uses pk_lane, pk_entry.
UPDATE holdfast.lane
SET delivered_sequence = CASE WHEN p.types = '{}' THEN lane.delivered_sequence
                              ELSE lane.last_sequence END,
    attempt = CASE WHEN p.types = '{}' THEN lane.attempt ELSE 0 END,
    rescued = CASE WHEN p.types = '{}' THEN lane.rescued ELSE 0 END,
    tried_since_us = CASE WHEN p.types = '{}' THEN lane.tried_since_us END,
    due_at = CASE WHEN p.types = '{}' THEN now() + interval '60 seconds' END
FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(last_sequences)s::bigint[])
         AS empty (endpoint_id, subject_id, last_sequence)
JOIN holdfast.endpoint p ON p.id = empty.endpoint_id
WHERE lane.endpoint_id = empty.endpoint_id AND lane.subject_id = empty.subject_id
  AND lane.last_sequence = empty.last_sequence
  AND lane.token IS NULL
  AND NOT EXISTS (
      SELECT FROM holdfast.entry e
      WHERE e.subject_id = lane.subject_id
        AND e.sequence > lane.delivered_sequence AND e.sequence <= lane.last_sequence
        AND (p.types = '{}' OR e.type = ANY (p.types))
  )
RETURNING lane.endpoint_id, lane.subject_id, lane.delivered_sequence, p.types = '{}' AS gap
