-- Makes entries dead letters, in the transaction that settles their lanes.
-- Unique by uq_dead_letter_open: an entry has at most one open dead letter.
INSERT INTO holdfast.dead_letter (
    endpoint_id, subject_id, sequence, key, created_at, reason, detail, attempts
)
SELECT *
FROM unnest(
    %(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[],
    %(keys)s::uuid[], %(created_ats)s::timestamptz[], %(reasons)s::holdfast.dead_reason[],
    %(details)s::text[], %(attempts)s::integer[]
)
ON CONFLICT DO NOTHING
