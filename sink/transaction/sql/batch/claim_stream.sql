-- Gives the next epoch to a driver whose run has not begun: it fences every older run, and adopts no query id.
-- Index: pk_stream.
UPDATE holdfast.stream
SET epoch = epoch + 1, run_id = %(claim_id)s, started_at = clock_timestamp()
WHERE name = %(stream)s
