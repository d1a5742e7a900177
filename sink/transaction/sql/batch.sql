-- name: acts_for
-- The stream whose transition states the entries of a stream use: usually its own; no row for an unknown stream.
-- Index: pk_stream.
SELECT coalesce(acts_for, name) AS acts_for FROM holdfast.stream WHERE name = %(stream)s


-- name: add_batch
-- The ledger's row: from COMMIT on, this batch is written. pk_batch refuses a second row with the
-- same ids, even if the lock on the stream failed. Index: pk_batch.
INSERT INTO holdfast.batch (
    stream, query_id, batch_id, batch_no, run_id, epoch, row_count, entry_count, duplicate_count,
    differing_count, suppressed_count, quarantined_count, digest, source_offsets, written_at
)
OVERRIDING SYSTEM VALUE
VALUES (
    %(stream)s, %(query_id)s, %(batch_id)s, %(batch_no)s, %(run_id)s, %(epoch)s, %(rows)s,
    %(entries)s, %(duplicates)s, %(differing)s, %(suppressed)s, %(quarantined)s, %(digest)s,
    %(source_offsets)s, %(written_at)s
)


-- name: add_stream
-- Creates the row of a stream where there is none; two first runs at once create one row. `acts_for` of an existing row stays.
-- Index: pk_stream.
INSERT INTO holdfast.stream (name, acts_for) VALUES (%(stream)s, %(acts_for)s) ON CONFLICT (name) DO NOTHING


-- name: renamed_to
-- The stream that had a name before. As JSON, because before revision 0036 there is no such column. Reads all of stream, a small
-- table.
SELECT name FROM holdfast.stream AS s WHERE to_jsonb(s) -> 'former_names' ? %(stream)s


-- name: claim_stream
-- Gives the next epoch to a driver whose run has not begun: it fences every older run, and adopts no query id.
-- Index: pk_stream.
UPDATE holdfast.stream
SET epoch = epoch + 1, run_id = %(claim_id)s, started_at = clock_timestamp()
WHERE name = %(stream)s


-- name: continue_stream
-- Adopts another query id for a stream, if the ledger has the batch that the new checkpoint continues; `outcome` says what came
-- of it. Index: pk_stream, pk_batch.
SELECT outcome, adopted
FROM holdfast.continue_stream(
    %(stream)s, %(proof_query)s, %(proof_batch)s, %(proof_digest)s, %(query_id)s, %(batch_id)s)


-- name: doorbell
-- Notifies listening dispatchers that a batch is committed. After COMMIT and never inside: commits that notify wait for each
-- other. No index.
NOTIFY holdfast_doorbell


-- name: ensure_partitions
-- Creates the partitions of the coming days, in a transaction of its own before the batch, so that
-- their locks are not held while the batch is written. No index.
SELECT holdfast.ensure_partitions()


-- name: keep_name
-- Keeps a stream's name until COMMIT, for a row that will name it; no row where no stream has it. Index: pk_stream.
SELECT name FROM holdfast.stream WHERE name = %(stream)s FOR KEY SHARE


-- name: lock_stream
-- Locks the stream's row until COMMIT: runs and batches of one stream are serial from here on, so
-- the ledger rows read afterwards stay valid. Index: pk_stream.
SELECT query_id, epoch, run_id, started_at, coalesce(acts_for, name) AS acts_for
FROM holdfast.stream
WHERE name = %(stream)s
FOR UPDATE


-- name: newest_batch
-- The newest batch of a query in the ledger, and in another stream that this start of the query does not write (two sinks of
-- one query do); null where there is none. The first stays valid until COMMIT, because the stream is locked. Index: pk_batch.
SELECT newest.batch_id, other.stream AS other_stream, other.batch_id AS other_batch_id
FROM (
    SELECT max(batch_id) AS batch_id
    FROM holdfast.batch
    WHERE stream = %(stream)s AND query_id = %(query_id)s
) AS newest
LEFT JOIN (
    SELECT stream.name AS stream, written.batch_id
    FROM holdfast.stream
    CROSS JOIN LATERAL (
        SELECT max(batch_id) AS batch_id
        FROM holdfast.batch
        WHERE batch.stream = stream.name AND query_id = %(query_id)s
    ) AS written
    WHERE stream.name <> %(stream)s AND stream.run_id IS DISTINCT FROM %(run_id)s AND written.batch_id IS NOT NULL
    ORDER BY stream.name
    LIMIT 1
) AS other ON newest.batch_id IS NULL


-- name: outcome
-- A batch of a query, by default of the one that the stream has adopted; the newest one without a number. Index: pk_stream, pk_batch.
SELECT b.query_id, b.batch_id, b.run_id, b.epoch, b.digest, b.batch_no, b.written_at, b.row_count, b.entry_count,
    b.duplicate_count, b.differing_count, b.suppressed_count, b.quarantined_count
FROM holdfast.stream AS s
JOIN holdfast.batch AS b ON b.stream = s.name AND b.query_id = coalesce(%(query_id)s::uuid, s.query_id)
WHERE s.name = %(stream)s AND (%(batch_id)s::bigint IS NULL OR b.batch_id = %(batch_id)s)
ORDER BY b.batch_id DESC LIMIT 1


-- name: read_batch
-- The ledger's rows of batches, of those that are written. Valid until COMMIT, because the stream is locked.
-- Index: pk_batch.
SELECT
    batch_id, batch_no, run_id, epoch, digest, written_at, row_count, entry_count, duplicate_count,
    differing_count, suppressed_count, quarantined_count
FROM holdfast.batch
WHERE stream = %(stream)s AND query_id = %(query_id)s AND batch_id = ANY(%(batch_ids)s::bigint[])


-- name: reserve_batch
-- The batch's number, its timestamp, and the id of its transaction. Read after the subjects are locked, and never less than
-- the newest created_at of any of them, so that created_at never decreases within a subject, even if the clock does. No index.
SELECT
    nextval(pg_get_serial_sequence('holdfast.batch', 'batch_no')) AS batch_no,
    greatest(clock_timestamp(), %(last_created_at)s::timestamptz) AS written_at,
    pg_current_xact_id()::text AS transaction_id


-- name: start_run
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
