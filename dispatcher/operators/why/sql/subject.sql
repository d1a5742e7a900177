-- A subject and its last sequence; no row for an unknown name.
-- Uses uq_subject_name.
SELECT id AS subject_id, name AS subject, last_sequence
FROM holdfast.subject
WHERE name = %(subject)s
