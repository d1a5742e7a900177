-- Gives the run the next epoch, which fences every older run, or that of its driver's claim, which has done so. Adopts the
-- query id, which the caller has compared. Index: pk_stream.
UPDATE holdfast.stream
SET epoch = epoch + CASE WHEN run_id = %(claim_id)s THEN 0 ELSE 1 END,
    query_id = %(query_id)s,
    run_id = %(run_id)s,
    checkpoint = coalesce(%(checkpoint)s, checkpoint),
    adopted_at = coalesce(adopted_at, clock_timestamp()),
    started_at = clock_timestamp()
WHERE name = %(stream)s
RETURNING epoch
