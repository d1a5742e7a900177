-- Moves each subject to its last entry of the batch; its times never go back. The rows are locked
-- already, so the order of the update does not matter. Index: pk_subject.
UPDATE holdfast.subject
SET last_sequence = latest.sequence,
    last_type = latest.type,
    last_occurred_at = greatest(subject.last_occurred_at, latest.occurred_at),
    last_created_at = greatest(subject.last_created_at, %(written_at)s)
FROM (
    -- Entries are numbered in the order of occurred_at, so the last one is the batch's newest.
    SELECT DISTINCT ON (subject_id) subject_id, sequence, type, occurred_at
    FROM pg_temp.holdfast_numbered
    ORDER BY subject_id, sequence DESC
) AS latest
WHERE subject.id = latest.subject_id
