-- The transition states of locked subjects in one stream, as one CSV text. Read after they are locked, by a statement of its
-- own: what another stream's transaction wrote meanwhile is seen. Index: pk_transition.
SELECT string_agg(concat_ws(',', subject_id, last_type, last_occurred_at::text), E'\n') AS found
FROM unnest(%(ids)s::bigint[]) AS given (subject_id)
JOIN holdfast.transition USING (subject_id)
WHERE transition.stream = %(stream)s
