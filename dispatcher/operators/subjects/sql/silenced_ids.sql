-- Subjects with a transition state that is more than a day ahead of the clock, up to a number of them.
-- Uses ix_transition_ahead.
SELECT coalesce(array_agg(DISTINCT subject_id), '{}') AS ids
FROM (
    SELECT subject_id
    FROM holdfast.transition
    WHERE ahead AND last_occurred_at > clock_timestamp() + interval '1 day'
    LIMIT %(most)s
) silenced
