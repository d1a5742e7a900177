-- The next batches after a number in a time range that together have at most N entries (at least one batch).
-- Walks uq_batch_batch_no.
SELECT count(*) AS batches, max(batch_no) AS last_batch_no, min(written_at) AS first_written_at,
       max(written_at) AS last_written_at, coalesce(sum(entry_count), 0)::bigint AS entries
FROM (
    SELECT batch_no, written_at, entry_count, sum(entry_count) OVER (ORDER BY batch_no) - entry_count AS before
    FROM (
        SELECT batch_no, written_at, entry_count
        FROM holdfast.batch
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(until_batch_no)s
          AND written_at >= %(since)s AND written_at < %(until)s
          AND (%(stream)s::text IS NULL OR stream = %(stream)s::text)
        ORDER BY batch_no
        LIMIT 10000
    ) next
) counted
WHERE before < %(entries)s
