-- Gives the run the next epoch, which fences every older run. Adopts the query id, which the caller
-- has compared. Index: pk_stream.
UPDATE holdfast.stream
SET epoch = epoch + 1,
    query_id = %(query_id)s,
    run_id = %(run_id)s,
    checkpoint = coalesce(%(checkpoint)s, checkpoint),
    adopted_at = coalesce(adopted_at, clock_timestamp()),
    started_at = clock_timestamp()
WHERE name = %(stream)s
RETURNING epoch
