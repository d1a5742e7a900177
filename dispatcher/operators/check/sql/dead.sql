-- I5, I4: an open dead letter was not delivered, and has the key of its entry.
-- Uses uq_dead_letter_open, pk_attempt, pk_entry.
WITH found AS MATERIALIZED (
    SELECT d.id, d.subject_id, d.sequence, d.key, d.created_at
    FROM holdfast.dead_letter d
    WHERE d.resolution IS NULL AND d.endpoint_id = %(endpoint_id)s
      AND d.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
),
violations AS (
    SELECT v.rule, f.subject_id, f.sequence, f.key, v.detail
    FROM found f
    LEFT JOIN holdfast.entry e
      ON e.subject_id = f.subject_id AND e.sequence = f.sequence AND e.created_at = f.created_at
    CROSS JOIN LATERAL (VALUES
        ('dead_and_delivered', EXISTS (
            SELECT FROM holdfast.attempt a
            WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = f.subject_id AND a.sequence = f.sequence
              AND a.finished_at >= f.created_at - interval '1 hour' AND a.outcome = 'delivered' OFFSET 0),
         format('dead letter %%s', f.id)),
        ('dead_key', e.key <> f.key, format('dead letter %%s has the key hf_%%s', f.id, replace(f.key::text, '-', '')))
    ) AS v (rule, violated, detail)
    WHERE v.violated
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.key, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, NULL, 'dead_letters' FROM found
