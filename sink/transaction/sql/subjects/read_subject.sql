-- The state of a subject before a batch of one stream, as numbering.SUBJECTS; no row for a new subject. Takes no lock.
-- Index: uq_subject_name, pk_transition.
SELECT id, last_sequence, last_type, last_occurred_at
FROM holdfast.subject
LEFT JOIN holdfast.transition ON transition.subject_id = subject.id AND transition.stream = %(stream)s
WHERE name = %(subject)s
