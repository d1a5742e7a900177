-- Advances the transition states of locked subjects in one stream to their last entries of the batch; a time never decreases.
-- The subject's row lock excludes other writers of its rows. Index: pk_transition.
MERGE INTO holdfast.transition AS known
USING unnest(%(ids)s::bigint[], %(types)s::text[], %(times)s::timestamptz[])
    AS moved (subject_id, last_type, last_occurred_at)
ON known.subject_id = moved.subject_id AND known.stream = %(stream)s
WHEN MATCHED THEN
    UPDATE SET
        last_type = moved.last_type,
        last_occurred_at = greatest(known.last_occurred_at, moved.last_occurred_at),
        updated_at = %(written_at)s
WHEN NOT MATCHED THEN
    INSERT (subject_id, stream, last_type, last_occurred_at, updated_at)
    VALUES (moved.subject_id, %(stream)s, moved.last_type, moved.last_occurred_at, %(written_at)s)
