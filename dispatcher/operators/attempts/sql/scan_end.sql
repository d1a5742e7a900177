-- The moment of the Nth newest attempt between two moments; no row where there are fewer.
-- Walks ix_attempt_finished_at backwards, partition by partition.
SELECT finished_at
FROM holdfast.attempt
WHERE finished_at < %(up_to)s::timestamptz AND finished_at >= %(since)s::timestamptz
  AND finished_at < %(until)s::timestamptz
ORDER BY finished_at DESC
OFFSET %(scan)s
LIMIT 1
