-- The entries written since a moment, by minute; of the newest N batches.
-- Walks uq_batch_batch_no backwards.
WITH recent AS MATERIALIZED (
    SELECT written_at, entry_count
    FROM holdfast.batch
    ORDER BY batch_no DESC
    LIMIT %(most)s
)
SELECT (SELECT count(*) FROM recent) AS batches,
       (SELECT min(written_at) FROM recent) AS oldest,
       (SELECT coalesce(json_agg(json_build_array(minute, entries)), '[]')
          FROM (SELECT floor(extract(epoch FROM written_at) / 60)::bigint AS minute, sum(entry_count)::bigint AS entries
                  FROM recent
                 WHERE written_at >= %(since)s::timestamptz
                 GROUP BY 1) counted) AS minutes
