-- The newest batches up to a number, of a stream and between two times if given, that together have at most N entries (at least
-- one batch). Walks uq_batch_batch_no backwards.
SELECT count(*) AS batches, min(batch_no) AS first_batch_no, max(batch_no) AS last_batch_no,
       min(written_at) AS first_written_at, max(written_at) AS last_written_at
FROM (
    SELECT batch_no, written_at, sum(entry_count) OVER (ORDER BY batch_no DESC) - entry_count AS newer
    FROM (
        SELECT batch_no, written_at, entry_count
        FROM holdfast.batch
        WHERE batch_no <= %(up_to_batch_no)s AND entry_count > 0
          AND (%(stream)s::text IS NULL OR stream = %(stream)s::text)
          AND written_at >= %(since)s::timestamptz AND written_at < %(until)s::timestamptz
        ORDER BY batch_no DESC
        LIMIT %(batches)s
    ) newest
) counted
WHERE newer < %(entries)s
