-- A subject by its name; no row where none has it.
-- Uses uq_subject_name.
SELECT id, name, last_sequence, last_type, last_occurred_at, last_created_at
FROM holdfast.subject
WHERE name = %(subject)s
