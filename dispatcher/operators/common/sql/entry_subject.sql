-- The id of a subject; no row for an unknown name.
-- Uses uq_subject_name.
SELECT id FROM holdfast.subject WHERE name = %(subject)s
