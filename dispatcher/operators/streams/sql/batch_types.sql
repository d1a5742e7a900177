-- The stored entries of a batch, by type.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment.
SELECT type, count(*) AS entries, count(DISTINCT subject_id) AS subjects
FROM holdfast.entry
WHERE batch_no = %(batch_no)s AND created_at = %(written_at)s
GROUP BY type
ORDER BY type
