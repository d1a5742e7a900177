-- name: add_divergence
-- Records a diverged replay, once for each batch and digest however often the driver restarts.
-- Index: uq_divergence_batch_no.
WITH added AS (
    INSERT INTO holdfast.divergence (
        batch_no, digest, run_id, row_count, quarantined_count, differing_count
    )
    VALUES (
        %(batch_no)s, %(digest)s, %(run_id)s, %(rows)s, %(quarantined)s, %(differing)s
    )
    ON CONFLICT (batch_no, digest) DO NOTHING
    RETURNING id
)
SELECT id, true AS is_new FROM added
UNION ALL
SELECT id, false FROM holdfast.divergence WHERE batch_no = %(batch_no)s AND digest = %(digest)s


-- name: accepted_digests
-- The digests of the replays of a batch that a person accepted. As JSON, because before revision 0035 there is no such column.
-- Index: uq_divergence_batch_no.
SELECT digest FROM holdfast.divergence AS v WHERE batch_no = %(batch_no)s AND to_jsonb(v) ->> 'accepted_at' IS NOT NULL


-- name: compare_keys
-- How a replay's keys differ from those the batch and its accepted replays wrote: for each side the count and the
-- first rows, at most 10,000 in all, by position from 0 in the replay. A key that an older batch recorded was a duplicate in
-- the batch too. Index: ix_entry_key_batch_no, pk_entry_key.
WITH ledger AS (
    SELECT key, content FROM holdfast.entry_key WHERE batch_no = ANY(%(batch_nos)s::bigint[])
),
replay AS (
    SELECT key, content, position - 1 AS position
    FROM unnest(%(keys)s::uuid[], %(contents)s::uuid[]) WITH ORDINALITY
        AS given (key, content, position)
),
difference AS (
    SELECT
        key,
        replay.position,
        CASE
            WHEN replay.key IS NULL THEN 'only_in_ledger'
            WHEN ledger.key IS NULL THEN 'only_in_replay'
            ELSE 'changed'
        END AS side
    FROM ledger FULL JOIN replay USING (key)
    WHERE ledger.content IS DISTINCT FROM replay.content
        AND (ledger.key IS NOT NULL OR NOT EXISTS (
            SELECT FROM holdfast.entry_key AS older
            WHERE older.key = replay.key AND older.batch_no < (%(batch_nos)s::bigint[])[1]
        ))
),
placed AS (
    SELECT
        key,
        position,
        side,
        row_number() OVER (PARTITION BY side ORDER BY key) AS place,
        count(*) OVER (PARTITION BY side) AS count
    FROM difference
)
SELECT side, count, key, position, place FROM placed ORDER BY place, side LIMIT 10000


-- name: copy_divergence_rows
-- Streams the rows in which a replay differs from its batch.
-- Index: pk_divergence_row.
COPY holdfast.divergence_row (divergence_id, key, side, subject, type, occurred_at, body) FROM STDIN


-- name: copy_entries
-- Streams the numbered entries with their final bodies, all with the batch's timestamp.
-- Index: pk_entry (of the day's partition).
COPY holdfast.entry (
    subject_id, sequence, created_at, key, type, occurred_at, priority, batch_no, traceparent, body
) FROM STDIN (FORMAT binary)


-- name: copy_quarantine
-- Streams the quarantined rows.
-- Index: pk_quarantine, ix_quarantine_batch_no.
COPY holdfast.quarantine (batch_no, reason, detail, row, quarantined_at) FROM STDIN (FORMAT csv)


-- name: copy_rejected
-- Streams the quarantined rows of a batch in which rules of the job rejected some.
-- Index: pk_quarantine, ix_quarantine_batch_no.
COPY holdfast.quarantine (batch_no, reason, detail, row, rule, quarantined_at) FROM STDIN (FORMAT csv)


-- name: copy_suppressed
-- Streams the suppressed entries of a batch, all with the batch's timestamp.
-- Index: pk_suppressed, ix_suppressed_subject_id, ix_suppressed_overtaken (of the day's partition).
COPY holdfast.suppressed (
    batch_no, suppressed_at, subject_id, key, occurred_at, priority, type, cause, traceparent, key_parts, data
) FROM STDIN (FORMAT binary)


-- name: future_limit
-- The latest occurred_at that is accepted, by the database's clock.
-- No index.
SELECT clock_timestamp() + %(tolerance)s::interval AS latest
