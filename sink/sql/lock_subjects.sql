-- Locks every subject of the batch until COMMIT, in name order as add_subjects: whoever holds the
-- row numbers the subject's entries, so sequences have no gap. Index: uq_subject_name.
SELECT max(last_created_at) AS last_created_at
FROM (
    SELECT subject.last_created_at
    FROM (SELECT DISTINCT subject AS name FROM pg_temp.holdfast_staged) AS staged
    JOIN holdfast.subject USING (name)
    ORDER BY subject.name COLLATE "C"
    FOR NO KEY UPDATE OF subject
) AS locked
