-- The newest decision of a subject: its sequence, its type, its time.
-- Uses pk_subject.
SELECT last_sequence, last_type, last_occurred_at FROM holdfast.subject WHERE id = %(subject_id)s
