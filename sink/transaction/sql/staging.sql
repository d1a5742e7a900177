-- name: add_entries
-- Writes the numbered entries with their final bodies, all with the batch's timestamp; a null
-- traceparent becomes the batch's. Index: pk_entry (of the day's partition).
INSERT INTO holdfast.entry (
    subject_id, sequence, created_at, key, type, occurred_at, priority, batch_no, traceparent, body
)
SELECT
    numbered.subject_id,
    numbered.sequence,
    %(written_at)s,
    staged.key,
    staged.type,
    staged.occurred_at,
    staged.priority,
    %(batch_no)s,
    coalesce(staged.traceparent, %(traceparent)s),
    convert_to(staged.head || numbered.sequence || staged.tail, 'UTF8')
FROM pg_temp.holdfast_numbered AS numbered
JOIN pg_temp.holdfast_staged AS staged USING (ordinal)
ORDER BY numbered.subject_id, numbered.sequence


-- name: analyze_stage
-- Gives the planner statistics of a new stage; runs as the schema's owner.
-- No index: it reads a sample.
SELECT holdfast.analyze_stage(%(number)s)


-- name: copy_numbered
-- Streams the numbers of staged entries.
-- No index.
COPY pg_temp.holdfast_numbered (ordinal, subject_id, sequence) FROM STDIN (FORMAT csv)


-- name: copy_stage_entries
-- Streams entries of one task attempt into the batch's stage; several may have one key.
-- No index.
COPY {stage} (
    attempt, row_hash, subject, type, key, occurred_at, priority, traceparent, head, tail,
    key_text, content
)
FROM STDIN (FORMAT csv)


-- name: copy_stage_refused
-- Streams refused rows of one task attempt into the batch's stage, with rules where the batch may have some.
-- No index.
COPY {stage} (attempt, row_hash, reason, detail, row{rule}) FROM STDIN (FORMAT csv)


-- name: count_stage
-- How many rows of each winning attempt are in the stage: an unlogged table is empty after a crash.
-- No index: it reads all of the stage.
SELECT attempt, count(*) AS rows, count(reason) AS refused
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[])
GROUP BY attempt


-- name: count_stage_conflicts
-- How many entries of the winning attempts share the key, but not the content, of a promoted entry.
-- No index: it reads all of the stage.
SELECT count(*) AS count
FROM {stage} AS later
JOIN pg_temp.holdfast_staged AS staged USING (key)
WHERE later.attempt = ANY(%(attempts)s::bigint[]) AND (later.content, later.subject) <> (staged.content, staged.subject)


-- name: create_numbered
-- The written ones of the staged entries, with subjects and sequences; dropped at COMMIT.
-- No index: each statement reads all of it.
CREATE TEMPORARY TABLE holdfast_numbered (
    ordinal    integer NOT NULL,
    subject_id bigint  NOT NULL,
    sequence   bigint  NOT NULL
) ON COMMIT DROP


-- name: create_staged
-- The table for a batch's entries: created in its transaction and dropped with it, so that the next
-- client of a pooled session does not find it. No index: each statement reads all of it.
CREATE TEMPORARY TABLE holdfast_staged (
    ordinal     integer     NOT NULL,
    subject     text        NOT NULL,
    type        text        NOT NULL,
    key         uuid        NOT NULL,
    content     uuid        NOT NULL,
    occurred_at timestamptz NOT NULL,
    priority    smallint    NOT NULL,
    traceparent text,
    head        text        NOT NULL,
    tail        text        NOT NULL
) ON COMMIT DROP


-- name: drop_stages
-- Drops the stages of a run and of older ones, except those that a late task still writes to. A failover may give an epoch out
-- twice, so a run of the owner's epoch or a higher one drops them only if it is the owner, under the stream's lock; no row
-- otherwise. Index: pk_stream.
SELECT holdfast.drop_stages(owned.name, %(epoch)s) AS dropped
FROM (
    SELECT name
    FROM holdfast.stream
    WHERE name = %(stream)s
        AND (epoch > %(epoch)s OR (epoch = %(epoch)s AND run_id = %(run_id)s))
    FOR UPDATE
) AS owned


-- name: hash_stage
-- The hashes of the winning rows in order, concatenated in up to 256 parts: a value is limited to 1 GB.
-- No index: it reads all of the stage.
SELECT string_agg(row_hash, ''::bytea ORDER BY row_hash) AS hashes
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[])
GROUP BY get_byte(row_hash, 0)
ORDER BY get_byte(row_hash, 0)


-- name: open_stage
-- Creates the table into which the tasks of one batch copy their rows; runs as the schema's owner.
-- No index.
SELECT holdfast.open_stage(%(stream)s, %(epoch)s, %(batch_id)s) AS number


-- name: promote_stage
-- Moves the entries of the winning attempts into the session's staging table, the first of each key
-- only, numbered in the order of sink/rows/order.py. No index: it reads all of the stage.
WITH winning AS NOT MATERIALIZED (
    SELECT ctid AS place, * FROM {stage} WHERE attempt = ANY(%(attempts)s::bigint[]) AND reason IS NULL
),
repeated AS MATERIALIZED (
    SELECT key FROM winning GROUP BY key HAVING count(*) > 1
),
later AS MATERIALIZED (
    SELECT place
    FROM (
        SELECT
            place,
            row_number() OVER (
                PARTITION BY key
                ORDER BY
                    subject COLLATE "C", occurred_at, key_text COLLATE "C", type COLLATE "C",
                    tail COLLATE "C", priority, traceparent COLLATE "C"
            ) AS turn
        FROM winning JOIN repeated USING (key)
    ) AS turns
    WHERE turn > 1
)
INSERT INTO pg_temp.holdfast_staged
    (ordinal, subject, type, key, content, occurred_at, priority, traceparent, head, tail)
SELECT
    row_number() OVER (
        ORDER BY
            subject COLLATE "C", occurred_at, key_text COLLATE "C", type COLLATE "C",
            tail COLLATE "C"
    ) - 1,
    subject, type, key, content, occurred_at, priority, traceparent, head, tail
FROM winning
WHERE NOT EXISTS (SELECT FROM later WHERE later.place = winning.place)


-- name: quarantine_stage
-- Quarantines the refused rows of the winning attempts: the rows of the stage with a reason.
-- No index: it reads all of the stage.
INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at{rule})
SELECT %(batch_no)s, reason, detail, row, %(at)s::timestamptz{rule}
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[]) AND reason IS NOT NULL
ORDER BY attempt, ctid


-- name: read_stage_conflicts
-- The entries that count_stage_conflicts counts, as rows of `prepared.ENTRIES`, in the order of entries.
-- No index: it reads all of the stage.
SELECT
    later.subject, later.type, later.key_text, later.key, later.occurred_at, later.priority,
    later.traceparent, later.tail
FROM {stage} AS later
JOIN pg_temp.holdfast_staged AS staged USING (key)
WHERE later.attempt = ANY(%(attempts)s::bigint[]) AND (later.content, later.subject) <> (staged.content, staged.subject)
ORDER BY
    later.subject COLLATE "C", later.occurred_at, later.key_text COLLATE "C",
    later.type COLLATE "C", later.tail COLLATE "C", later.priority, later.traceparent COLLATE "C"


-- name: read_staged
-- The columns by which staged entries are numbered, in order; a key as 32 hex digits.
-- No index: it reads all of the table.
COPY (
    SELECT
        subject, type, replace(key::text, '-', ''), replace(content::text, '-', ''), occurred_at
    FROM pg_temp.holdfast_staged ORDER BY ordinal
) TO STDOUT (FORMAT csv)


-- name: show_staged
-- Some staged entries as rows of `prepared.ENTRIES`, in the order of the given ordinals.
-- No index: it reads all of both tables.
WITH wanted AS (
    SELECT staged.*, given.place
    FROM unnest(%(ordinals)s::bigint[]) WITH ORDINALITY AS given (ordinal, place)
    JOIN pg_temp.holdfast_staged AS staged USING (ordinal)
),
named AS (
    SELECT key, min(stage.key_text) AS key_text
    FROM {stage} AS stage
    JOIN (SELECT DISTINCT key FROM wanted) AS keys USING (key)
    WHERE stage.attempt = ANY(%(attempts)s::bigint[]) AND stage.reason IS NULL
    GROUP BY key
)
SELECT subject, type, key_text, replace(key::text, '-', '') AS key, occurred_at, priority, traceparent, head, tail
FROM wanted
JOIN named USING (key)
ORDER BY place


-- name: suppress_staged
-- Records the suppressed entries. A tail is the key member, whose length is given, the data, and a closing brace.
-- No index: it reads all of both tables.
WITH chosen AS (
    SELECT staged.*, given.subject_id, given.overtaken
    FROM unnest(%(ordinals)s::integer[], %(subject_ids)s::bigint[], %(overtaken)s::boolean[])
        AS given (ordinal, subject_id, overtaken)
    JOIN pg_temp.holdfast_staged AS staged USING (ordinal)
),
named AS (
    SELECT key, min(stage.key_text) AS key_parts
    FROM {stage} AS stage
    JOIN chosen USING (key)
    WHERE stage.attempt = ANY(%(attempts)s::bigint[]) AND stage.reason IS NULL
    GROUP BY key
)
INSERT INTO holdfast.suppressed (
    batch_no, key, suppressed_at, subject_id, type, occurred_at, priority, cause, traceparent, key_parts, data
)
SELECT
    %(batch_no)s,
    key,
    %(at)s::timestamptz,
    chosen.subject_id,
    chosen.type,
    chosen.occurred_at,
    chosen.priority,
    (CASE WHEN chosen.overtaken THEN 'overtaken' ELSE 'repeated' END)::holdfast.suppressed_cause,
    coalesce(chosen.traceparent, %(traceparent)s),
    named.key_parts,
    substr(chosen.tail, %(before_data)s + 1, length(chosen.tail) - %(before_data)s - 1)
FROM chosen
JOIN named USING (key)
