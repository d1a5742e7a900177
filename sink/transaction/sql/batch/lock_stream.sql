-- Locks the stream's row until COMMIT: runs and batches of one stream are serial from here on, so
-- the ledger rows read afterwards stay valid. Index: pk_stream.
SELECT query_id, epoch, run_id, started_at, coalesce(acts_for, name) AS acts_for
FROM holdfast.stream
WHERE name = %(stream)s
FOR UPDATE
