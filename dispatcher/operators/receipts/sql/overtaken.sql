-- Of some entries that a receiver answered with stale, the explained ones: sent after a later entry, or applied before.
-- Uses uq_subject_name and pk_attempt: once for each subject, the attempts from its lowest given entry on.
WITH asked AS (
    SELECT s.id AS subject_id, s.name AS subject, a.sequence
    FROM unnest(%(subjects)s::text[], %(sequences)s::bigint[]) AS a (subject, sequence)
    JOIN holdfast.subject s ON s.name = a.subject
), sent AS (
    SELECT f.subject_id, t.sequence,
           min(t.finished_at) FILTER (WHERE t.outcome = 'delivered' AND t.said IS DISTINCT FROM 'applied'
                                        AND t.said IS DISTINCT FROM 'duplicate') AS stale_at,
           -- An unknown outcome may have been applied.
           min(t.finished_at - coalesce(t.duration_ms, 0) * interval '1 millisecond') AS begun_at,
           coalesce(bool_or(t.said = 'stale'), false) AS stale,
           coalesce(bool_or(t.said IN ('applied', 'duplicate')), false) AS applied
    FROM (SELECT subject_id, min(sequence) AS lowest FROM asked GROUP BY subject_id) f
    CROSS JOIN LATERAL (
        SELECT a.sequence, a.finished_at, a.duration_ms, a.outcome, a.receipt::json ->> 'outcome' AS said
        FROM holdfast.attempt a
        WHERE a.endpoint_id = %(endpoint_id)s AND a.subject_id = f.subject_id AND a.sequence >= f.lowest
          AND a.outcome IN ('delivered', 'unknown')
    ) t
    GROUP BY f.subject_id, t.sequence
), judged AS (
    SELECT subject_id, sequence, stale_at, applied,
           min(begun_at) FILTER (WHERE applied OR NOT stale) OVER (
               PARTITION BY subject_id ORDER BY sequence DESC
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS later_begun_at
    FROM sent
)
SELECT asked.subject, asked.sequence
FROM asked
JOIN judged USING (subject_id, sequence)
WHERE judged.applied OR judged.later_begun_at < judged.stale_at
