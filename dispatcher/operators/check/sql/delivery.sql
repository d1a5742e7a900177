-- I9, I5: the endpoint's lane reaches a routed entry, and what a lane has passed was delivered or is a dead letter.
-- Uses pk_entry and pk_attempt of the partitions of that time, pk_lane; later partitions and ix_batch_unrouted row by row.
WITH found AS MATERIALIZED (
    SELECT e.subject_id, e.sequence, e.key, e.batch_no, e.created_at, l.delivered_sequence, l.last_sequence
    FROM holdfast.entry e
    JOIN holdfast.endpoint p
      ON p.id = %(endpoint_id)s
     AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
    LEFT JOIN holdfast.lane l
      ON l.endpoint_id = %(endpoint_id)s AND l.subject_id = e.subject_id
     AND l.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
    WHERE e.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
      AND e.created_at >= %(delivery_since)s AND e.created_at < %(until)s
      AND (%(types)s::text[] = '{}' OR e.type = ANY (%(types)s::text[]))
      AND (%(stream)s::text IS NULL
           OR e.batch_no IN (SELECT b.batch_no FROM holdfast.batch b WHERE b.stream = %(stream)s::text))
),
open AS (
    SELECT f.*
    FROM found f
    LEFT JOIN (
        SELECT subject_id, sequence
        FROM holdfast.attempt
        WHERE endpoint_id = %(endpoint_id)s AND subject_id BETWEEN %(first_subject)s AND %(last_subject)s
          AND finished_at >= %(delivery_since)s::timestamptz - interval '1 hour'
          AND finished_at < %(until)s::timestamptz + interval '1 day'
          AND outcome = 'delivered'
        UNION ALL
        SELECT subject_id, sequence
        FROM holdfast.dead_letter
        WHERE endpoint_id = %(endpoint_id)s AND subject_id BETWEEN %(first_subject)s AND %(last_subject)s
    ) settled USING (subject_id, sequence)
    WHERE settled.subject_id IS NULL
),
violations AS (
    SELECT v.rule, o.subject_id, o.sequence, o.key, v.detail
    FROM open o
    CROSS JOIN LATERAL (VALUES
        ('entry_unreached', CASE WHEN coalesce(o.last_sequence, 0) < o.sequence THEN NOT EXISTS (
            SELECT FROM holdfast.batch b WHERE b.batch_no = o.batch_no AND b.routed_at IS NULL OFFSET 0) END,
         coalesce(format('its lane is routed up to %%s', o.last_sequence), 'it has no lane')),
        ('passed_undelivered', CASE WHEN o.sequence <= o.delivered_sequence THEN NOT EXISTS (
            SELECT FROM holdfast.attempt a
            WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = o.subject_id AND a.sequence = o.sequence
              AND a.finished_at >= %(until)s::timestamptz + interval '1 day' AND a.outcome = 'delivered' OFFSET 0) END,
         format('its lane is at %%s', o.delivered_sequence))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (coalesce(o.last_sequence, 0) < o.sequence OR o.sequence <= o.delivered_sequence) AND v.violated
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
SELECT NULL, count(*), NULL, NULL, NULL, 'deliveries' FROM found
