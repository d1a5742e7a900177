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
