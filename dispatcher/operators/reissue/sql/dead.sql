-- The open dead letters of an entry, at any endpoint.
-- Uses uq_dead_letter_open, once for each endpoint.
SELECT d.id
FROM holdfast.endpoint p
JOIN holdfast.dead_letter d ON d.endpoint_id = p.id
WHERE d.subject_id = %(subject_id)s AND d.sequence = %(sequence)s AND d.resolution IS NULL
ORDER BY d.id
