-- The SHA-256 over what a replay would send, in order. Retries that are only brought forward are not part of it: they come and
-- go by themselves. Reads all of a temporary table.
SELECT sha256(convert_to(coalesce(string_agg(
    concat_ws(',', endpoint_id, subject_id, sequence, kind), E'\n'
    ORDER BY created_at, subject_id, sequence, endpoint_id), ''), 'UTF8')) AS sha256
FROM pg_temp.holdfast_found
WHERE kind NOT IN ('nothing', 'hasten')
