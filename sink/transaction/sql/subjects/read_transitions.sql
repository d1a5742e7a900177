-- The transition states of locked subjects in one stream, as one CSV text. A statement of its own after the lock, so that it
-- sees what other transactions committed before. Index: pk_transition.
SELECT string_agg(concat_ws(',', subject_id, last_type, last_occurred_at::text), E'\n') AS found
FROM unnest(%(ids)s::bigint[]) AS given (subject_id)
JOIN holdfast.transition USING (subject_id)
WHERE transition.stream = %(stream)s
