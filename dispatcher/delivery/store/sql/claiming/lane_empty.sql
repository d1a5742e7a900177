-- Decides about lanes whose next entry a claim did not find, unless they changed since. Searches every day, which is rarely needed.
-- If the entry is stored on a day that the claim did not search, the lane gets the entry's date and is due again. If none is stored
-- and the endpoint takes only some types, the lane becomes idle. Otherwise the entry is missing (gap), and the lane waits.
-- Uses pk_lane, pk_entry.
UPDATE holdfast.lane
SET delivered_sequence = CASE WHEN f.idle THEN lane.last_sequence ELSE lane.delivered_sequence END,
    attempt = CASE WHEN f.idle THEN 0 ELSE lane.attempt END,
    rescued = CASE WHEN f.idle THEN 0 ELSE lane.rescued END,
    tried_since_us = CASE WHEN f.idle THEN NULL ELSE lane.tried_since_us END,
    due_at = CASE WHEN f.gap THEN now() + interval '60 seconds' WHEN NOT f.idle THEN now() END,
    head_created_at = CASE WHEN f.gap OR f.idle THEN lane.head_created_at ELSE f.created_at END
FROM (
    SELECT lanes.*, n.sequence, n.created_at,
           p.types = '{}' AND n.sequence IS DISTINCT FROM lanes.delivered_sequence + 1 AS gap,
           p.types <> '{}' AND n.sequence IS NULL AS idle
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(delivered)s::bigint[], %(last)s::bigint[])
             AS lanes (endpoint_id, subject_id, delivered_sequence, last_sequence)
    JOIN holdfast.endpoint p ON p.id = lanes.endpoint_id
    LEFT JOIN LATERAL (
        SELECT e.sequence, e.created_at
        FROM holdfast.entry e
        WHERE e.subject_id = lanes.subject_id
          AND e.sequence > lanes.delivered_sequence AND e.sequence <= lanes.last_sequence
          AND (p.types = '{}' OR e.type = ANY (p.types))
        ORDER BY e.sequence
        LIMIT 1
    ) n ON true
) f
WHERE lane.endpoint_id = f.endpoint_id AND lane.subject_id = f.subject_id
  AND lane.delivered_sequence = f.delivered_sequence AND lane.last_sequence = f.last_sequence
  AND lane.token IS NULL
RETURNING lane.endpoint_id, lane.subject_id, f.delivered_sequence, f.sequence AS found, f.gap, f.idle
