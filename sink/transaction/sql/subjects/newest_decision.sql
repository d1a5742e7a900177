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
