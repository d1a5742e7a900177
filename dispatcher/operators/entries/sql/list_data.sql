-- As list.sql, of the entries whose `data` has a member with a given value, with `data` and with where each was delivered: the
-- outcome by its receipt, else `delivered`. Uses what list.sql uses, and pk_attempt for the entries of the page.
SELECT e.key, s.name AS subject, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.batch_no, e.subject_id,
       b.stream, b.query_id, b.batch_id, e.data, coalesce(there.delivered, '[]') AS delivered
FROM (
    SELECT e.key, e.subject_id, e.sequence, e.type, e.occurred_at, e.created_at, e.priority, e.batch_no, body.data
    FROM holdfast.entry e
    CROSS JOIN LATERAL (SELECT convert_from(e.body, 'UTF8')::jsonb -> 'data' AS data) body
    WHERE e.batch_no BETWEEN %(first_batch_no)s
          AND least(%(last_batch_no)s, coalesce(%(before_batch_no)s::bigint, %(last_batch_no)s))
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
      AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
      AND (%(subject_id)s::bigint IS NULL OR e.subject_id = %(subject_id)s::bigint)
      AND (%(stream)s::text IS NULL OR e.batch_no IN (
          SELECT b.batch_no FROM holdfast.batch b
          WHERE b.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s AND b.stream = %(stream)s::text))
      AND (%(before_batch_no)s::bigint IS NULL
           OR (e.batch_no, e.subject_id, e.sequence)
            < (%(before_batch_no)s::bigint, %(before_subject_id)s::bigint, %(before_sequence)s::bigint))
      AND body.data ->> %(member)s::text = %(value)s::text
    ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC
    LIMIT %(limit)s
) e
JOIN holdfast.batch b ON b.batch_no = e.batch_no
JOIN holdfast.subject s ON s.id = e.subject_id
CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object('endpoint', p.name, 'outcome', a.outcome) ORDER BY p.name) AS delivered
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        -- A repeat is answered with `duplicate`: what the first answer said is what was done.
        SELECT coalesce(a.receipt::json ->> 'outcome', 'delivered') AS outcome
        FROM holdfast.attempt a
        WHERE a.endpoint_id = p.id AND a.subject_id = e.subject_id AND a.sequence = e.sequence
          AND a.outcome = 'delivered' AND a.finished_at >= e.created_at - interval '1 hour'
        ORDER BY a.finished_at
        LIMIT 1
    ) a
) there
ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC
