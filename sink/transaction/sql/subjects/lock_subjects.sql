-- Locks every subject of the batch until COMMIT, in name order as add_subjects: the holder of the row
-- lock numbers the subject's entries, so sequences have no gap. Names come in that order, and sorting
-- by position is cheaper. Returns one CSV text, by position from 1. Index: uq_subject_name.
SELECT string_agg(
    concat_ws(',', position, id, last_sequence, coalesce(last_created_at::text, '')), E'\n'
) AS found
FROM (
    SELECT given.position, subject.id, subject.last_sequence, subject.last_created_at
    FROM unnest(%(names)s::text[]) WITH ORDINALITY AS given (name, position)
    JOIN holdfast.subject USING (name)
    ORDER BY given.position
    FOR NO KEY UPDATE OF subject
) AS locked
