-- Moves the transition states of locked subjects in one stream to their last entries of the batch; a time never goes back.
-- Index: pk_transition.
INSERT INTO holdfast.transition (subject_id, stream, last_type, last_occurred_at, updated_at)
SELECT moved.subject_id, %(stream)s, moved.last_type, moved.last_occurred_at, %(written_at)s
FROM unnest(%(ids)s::bigint[], %(types)s::text[], %(times)s::timestamptz[])
    AS moved (subject_id, last_type, last_occurred_at)
ON CONFLICT (subject_id, stream) DO UPDATE
SET last_type = excluded.last_type,
    last_occurred_at = greatest(transition.last_occurred_at, excluded.last_occurred_at),
    updated_at = excluded.updated_at
