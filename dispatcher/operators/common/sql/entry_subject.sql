-- The number of a subject; no row where none has this name.
-- Uses uq_subject_name.
SELECT id FROM holdfast.subject WHERE name = %(subject)s
