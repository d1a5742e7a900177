-- Stores receivers' key-retention windows; null: for ever. Rows are locked in the order of their ids.
-- Uses pk_endpoint_pace.
UPDATE holdfast.endpoint_pace
SET key_window_seconds = said.seconds, key_window_seen_at = now()
FROM (
    SELECT p.endpoint_id, w.seconds
    FROM unnest(%(endpoint_ids)s::integer[], %(seconds)s::bigint[]) AS w (endpoint_id, seconds)
    JOIN holdfast.endpoint_pace p ON p.endpoint_id = w.endpoint_id
    ORDER BY p.endpoint_id
    FOR NO KEY UPDATE OF p
) said
WHERE endpoint_pace.endpoint_id = said.endpoint_id
RETURNING endpoint_pace.endpoint_id
