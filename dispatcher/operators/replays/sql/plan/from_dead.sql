-- The entries of open dead letters.
-- Uses uq_dead_letter_open (all of it), pk_entry, uq_batch_batch_no.
INSERT INTO pg_temp.holdfast_candidate (subject_id, sequence, created_at, key, type, batch_no)
SELECT e.subject_id, e.sequence, e.created_at, e.key, e.type, e.batch_no
FROM (
    SELECT DISTINCT d.subject_id, d.sequence, d.created_at
    FROM holdfast.dead_letter d
    JOIN holdfast.endpoint p ON p.id = d.endpoint_id
    WHERE d.resolution IS NULL AND (%(endpoint)s::text IS NULL OR p.name = %(endpoint)s::text)
) d
JOIN holdfast.entry e
  ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
WHERE (%(subject)s::text IS NULL
       OR e.subject_id = (SELECT s.id FROM holdfast.subject s WHERE s.name = %(subject)s::text))
  AND (%(stream)s::text IS NULL OR e.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s
       AND EXISTS (SELECT FROM holdfast.batch b
                    WHERE b.batch_no = e.batch_no AND b.stream = %(stream)s::text
                      AND b.batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0)
                                         AND coalesce(%(last_batch)s::bigint, 9223372036854775807)))
  AND e.created_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND e.created_at < coalesce(%(until)s::timestamptz, 'infinity')
  AND (cardinality(%(types)s::text[]) = 0 OR e.type = ANY (%(types)s::text[]))
