-- name: add_subjects
-- Creates missing subjects, in name order, so that two streams wait for each other in one direction
-- only. Index: uq_subject_name.
INSERT INTO holdfast.subject (name)
SELECT name FROM unnest(%(names)s::text[]) AS given (name)
WHERE NOT EXISTS (SELECT FROM holdfast.subject AS known WHERE known.name = given.name)
ORDER BY name COLLATE "C"
ON CONFLICT (name) DO NOTHING


-- name: advance_subjects
-- Advances each subject to its last entry of the batch, and its transition state in one stream; a time never decreases. The
-- subject's row lock excludes other writers of both, so the order of the update does not matter. Index: pk_subject, pk_transition.
WITH moved AS (
    SELECT *
    FROM unnest(%(ids)s::bigint[], %(sequences)s::bigint[], %(types)s::text[], %(times)s::timestamptz[])
        AS given (id, last_sequence, last_type, last_occurred_at)
),
advanced AS (
    UPDATE holdfast.subject
    SET last_sequence = moved.last_sequence,
        last_created_at = greatest(subject.last_created_at, %(written_at)s)
    FROM moved
    WHERE subject.id = moved.id
)
MERGE INTO holdfast.transition AS known
USING moved
ON known.subject_id = moved.id AND known.stream = %(stream)s
WHEN MATCHED THEN
    UPDATE SET
        last_type = moved.last_type,
        last_occurred_at = greatest(known.last_occurred_at, moved.last_occurred_at),
        updated_at = %(written_at)s
WHEN NOT MATCHED THEN
    INSERT (subject_id, stream, last_type, last_occurred_at, updated_at)
    VALUES (moved.id, %(stream)s, moved.last_type, moved.last_occurred_at, %(written_at)s)


-- name: lock_subjects
-- Locks every subject of the batch until COMMIT, in name order as add_subjects: the holder of the row
-- lock numbers the subject's entries, so sequences have no gap. Names come in that order, and sorting
-- by position is cheaper. Returns one CSV text, by position from 1. Index: uq_subject_name.
SELECT string_agg(
    concat_ws(',', position, id, last_sequence, coalesce(last_created_at::text, '')), E'\n'
) AS found
FROM (
    SELECT given.position, subject.id, subject.last_sequence, subject.last_created_at
    FROM unnest(%(names)s::text[]) WITH ORDINALITY AS given (name, position)
    JOIN holdfast.subject USING (name)
    ORDER BY given.position
    FOR NO KEY UPDATE OF subject
) AS locked


-- name: newest_decision
-- A subject's last sequence, and the time of its newest decision (null without one) in a stream, or in another one that decides
-- the same: whose last type is equal up to its last dot. No row for a new subject. Index: uq_subject_name, pk_transition.
SELECT last_sequence, (
    SELECT max(last_occurred_at)
    FROM holdfast.transition t
    WHERE t.subject_id = subject.id
      AND (t.stream = %(stream)s
           OR regexp_replace(t.last_type, '[.][^.]*$', '') = regexp_replace(%(type)s, '[.][^.]*$', ''))
) AS occurred_at
FROM holdfast.subject
WHERE name = %(subject)s


-- name: read_subject
-- The state of a subject before a batch of one stream, as numbering.SUBJECTS; no row for a new subject. Takes no lock.
-- Index: uq_subject_name, pk_transition.
SELECT id, last_sequence, last_type, last_occurred_at
FROM holdfast.subject
LEFT JOIN holdfast.transition ON transition.subject_id = subject.id AND transition.stream = %(stream)s
WHERE name = %(subject)s


-- name: read_transitions
-- The transition states of locked subjects in one stream, as one CSV text. A statement of its own after the lock, so that it
-- sees what other transactions committed before. Index: pk_transition.
SELECT string_agg(concat_ws(',', subject_id, last_type, last_occurred_at::text), E'\n') AS found
FROM unnest(%(ids)s::bigint[]) AS given (subject_id)
JOIN holdfast.transition USING (subject_id)
WHERE transition.stream = %(stream)s
