-- Advances each subject to its last entry of the batch; its time never decreases. The rows are locked,
-- so the order of the update does not matter. Index: pk_subject.
UPDATE holdfast.subject
SET last_sequence = moved.last_sequence,
    last_created_at = greatest(subject.last_created_at, %(written_at)s)
FROM unnest(%(ids)s::bigint[], %(sequences)s::bigint[]) AS moved (id, last_sequence)
WHERE subject.id = moved.id
