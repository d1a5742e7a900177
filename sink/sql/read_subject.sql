-- What is known of a subject before a batch, as numbering.SUBJECTS; no row where it is new. Locks nothing.
-- Index: uq_subject_name.
SELECT id, last_sequence, last_type, last_occurred_at FROM holdfast.subject WHERE name = %(subject)s
