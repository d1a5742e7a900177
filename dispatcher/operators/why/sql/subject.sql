-- A subject and how far its entries go; no row where none has this name.
-- Uses uq_subject_name.
SELECT id AS subject_id, name AS subject, last_sequence
FROM holdfast.subject
WHERE name = %(subject)s
