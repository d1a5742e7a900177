-- Moves each subject to its last entry of the batch; its times never go back. The rows are locked
-- already, so the order of the update does not matter. Index: pk_subject.
UPDATE holdfast.subject
SET last_sequence = moved.last_sequence,
    last_type = moved.last_type,
    last_occurred_at = moved.last_occurred_at,
    last_created_at = greatest(subject.last_created_at, %(written_at)s)
FROM unnest(
    %(ids)s::bigint[], %(sequences)s::bigint[], %(types)s::text[], %(times)s::timestamptz[]
) AS moved (id, last_sequence, last_type, last_occurred_at)
WHERE subject.id = moved.id
