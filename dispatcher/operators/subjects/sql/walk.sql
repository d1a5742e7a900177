-- Among the next N subjects in the order of their names, those with lanes that wait for one reason, or any; and the last scanned
-- name. Uses ix_subject_name, pk_lane of each endpoint.
SELECT count(*) AS scanned, max(s.name COLLATE "C") AS until,
       coalesce((array_agg(s.id ORDER BY s.name COLLATE "C") FILTER (WHERE held.it))[1:%(limit)s], '{}') AS ids
FROM (
    SELECT id, name
    FROM holdfast.subject
    WHERE name COLLATE "C" > %(after)s::text AND name COLLATE "C" >= %(prefix)s::text
      AND (%(beyond)s::text IS NULL OR name COLLATE "C" < %(beyond)s::text)
    ORDER BY name COLLATE "C"
    LIMIT %(scan)s
) s
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT
        FROM holdfast.endpoint p
        CROSS JOIN LATERAL (
            SELECT l.attempt, l.token, l.due_at
            FROM holdfast.lane l
            WHERE l.endpoint_id = p.id AND l.subject_id = s.id AND l.delivered_sequence < l.last_sequence
            LIMIT 1
        ) l
        WHERE CASE %(held)s::text
            WHEN 'stopped' THEN l.token IS NULL AND l.due_at IS NULL
            WHEN 'retrying' THEN l.token IS NULL AND l.due_at IS NOT NULL AND l.attempt > 0
            WHEN 'behind' THEN l.token IS NOT NULL OR l.due_at IS NOT NULL AND l.attempt = 0
            ELSE true
        END
    ) AS it
) held
