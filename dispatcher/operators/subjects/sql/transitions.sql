-- The transition states of a subject, one for each stream, the newest first; those `ahead` of the clock silence it.
-- Uses pk_transition.
SELECT stream, last_type, last_occurred_at, updated_at,
       last_occurred_at > clock_timestamp() + interval '1 day' AS ahead
FROM holdfast.transition
WHERE subject_id = %(subject_id)s
ORDER BY updated_at DESC, stream
