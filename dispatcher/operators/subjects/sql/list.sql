-- Subjects in the order of their names, with a prefix, after a name, of some ids if given; each with the state of its lanes.
-- Uses ix_subject_name, or pk_subject for ids; pk_lane of each endpoint, pk_transition.
SELECT s.name, s.last_sequence, newest.last_type, s.last_created_at AS last_written_at,
       lanes.lanes, lanes.stopped, lanes.retrying, lanes.behind, lanes.undelivered, lanes.oldest_due_at
FROM (
    SELECT id, name, last_sequence, last_created_at
    FROM holdfast.subject
    WHERE (%(ids)s::bigint[] IS NULL OR id = ANY (%(ids)s::bigint[]))
      AND name COLLATE "C" > %(after)s::text AND name COLLATE "C" >= %(prefix)s::text
      AND (%(beyond)s::text IS NULL OR name COLLATE "C" < %(beyond)s::text)
    ORDER BY name COLLATE "C"
    LIMIT %(limit)s
) s
CROSS JOIN LATERAL (
    SELECT count(l.endpoint_id) AS lanes,
           count(*) FILTER (WHERE l.state = 'stopped') AS stopped,
           count(*) FILTER (WHERE l.state = 'retrying') AS retrying,
           count(*) FILTER (WHERE l.state = 'behind') AS behind,
           coalesce(max(l.last_sequence - l.delivered_sequence), 0) AS undelivered,
           min(l.due_at) AS oldest_due_at
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        SELECT l.endpoint_id, l.last_sequence, l.delivered_sequence, l.due_at,
               CASE WHEN l.delivered_sequence = l.last_sequence THEN NULL
                    WHEN l.token IS NOT NULL THEN 'behind'
                    WHEN l.due_at IS NULL THEN 'stopped'
                    WHEN l.attempt > 0 THEN 'retrying'
                    ELSE 'behind' END AS state
        FROM holdfast.lane l
        WHERE l.endpoint_id = p.id AND l.subject_id = s.id
        LIMIT 1
    ) l
) lanes
LEFT JOIN LATERAL (
    SELECT t.last_type
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
    ORDER BY t.updated_at DESC
    LIMIT 1
) newest ON true
ORDER BY s.name COLLATE "C"
