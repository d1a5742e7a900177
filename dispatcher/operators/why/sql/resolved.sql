-- The last resolution of a dead letter of an entry, among the newest 10,000 letters.
-- Uses pk_dead_letter backwards.
SELECT id AS resolved_letter, resolution::text AS resolution, resolved_at, resolved_by
FROM holdfast.dead_letter
WHERE id > (SELECT coalesce(max(id), 0) - 10000 FROM holdfast.dead_letter)
  AND endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s AND sequence = %(sequence)s
  AND resolution IS NOT NULL
ORDER BY id DESC
LIMIT 1
