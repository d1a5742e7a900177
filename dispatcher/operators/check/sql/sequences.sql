-- I1, I2: a subject's sequences have no gap and no repeat, end at its last sequence, and grow with time (I16).
-- Uses pk_subject, pk_entry of the partitions of that time; of those before it for the first entry of a subject.
WITH seen AS MATERIALIZED (
    SELECT e.subject_id, e.sequence, e.created_at,
           lag(e.sequence) OVER (PARTITION BY e.subject_id ORDER BY e.sequence, e.created_at) AS before,
           lag(e.created_at) OVER (PARTITION BY e.subject_id ORDER BY e.sequence, e.created_at) AS created_before
    FROM holdfast.entry e
    WHERE e.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
      AND e.created_at >= %(entries_since)s AND e.created_at < %(until)s
),
ends AS (
    SELECT s.id, s.name, s.last_sequence, s.last_created_at, coalesce(m.sequence, 0) AS sequence
    FROM holdfast.subject s
    LEFT JOIN (SELECT subject_id, max(sequence) AS sequence FROM seen GROUP BY subject_id) m ON m.subject_id = s.id
    WHERE s.id BETWEEN %(first_subject)s AND %(last_subject)s
),
violations AS (
    SELECT v.rule, seen.subject_id, seen.sequence, v.detail
    FROM seen
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN seen.before IS NOT NULL THEN seen.sequence > seen.before + 1
            -- The one before may be in a dropped partition.
            WHEN seen.sequence > 1 AND NOT %(dropped)s THEN NOT EXISTS (
                SELECT FROM holdfast.entry p
                WHERE p.subject_id = seen.subject_id AND p.sequence = seen.sequence - 1
                  AND p.created_at < %(entries_since)s
                OFFSET 0)
            ELSE false
        END AS gap
    ) judged
    CROSS JOIN LATERAL (VALUES
        ('sequence_gap', judged.gap, format('the sequence before it is %%s', coalesce(seen.before::text, 'missing'))),
        ('sequence_repeated', seen.sequence = seen.before, 'two entries have this sequence'),
        ('time_backwards', seen.created_at < seen.created_before,
         format('created at %%s, and the one before it at %%s', seen.created_at, seen.created_before))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (judged.gap OR seen.sequence = seen.before OR seen.created_at < seen.created_before) AND v.violated
    UNION ALL
    SELECT 'sequence_end', id, sequence,
           format('the subject is at %%s; the last entry of this range is %%s', last_sequence, sequence)
    FROM ends
    WHERE sequence > last_sequence
       OR (sequence < last_sequence AND last_created_at >= %(entries_since)s AND last_created_at < %(until)s)
)
SELECT n.rule, n.count, s.name AS subject, n.sequence, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
