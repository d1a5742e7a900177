-- name: batches_after
-- What the ledger has of the batches of a query after one of them.
-- Uses pk_batch.
SELECT batch_id, row_count, entry_count, source_offsets FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id > %(after)s
ORDER BY batch_id


-- name: batches_written
-- When each batch of a query was written, from one batch on.
-- Uses pk_batch.
SELECT batch_id, written_at FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id >= %(oldest)s


-- name: plans
-- The source offsets of a batch of a query and of the one before it.
-- Uses pk_batch.
SELECT batch_id, source_offsets FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id IN (%(batch)s - 1, %(batch)s)


-- name: running
-- The process ids of other sessions of a stream's sink on this database.
-- No index.
SELECT pid FROM pg_stat_activity
WHERE application_name = %(name)s AND datname = current_database() AND pid <> pg_backend_pid()
ORDER BY pid
