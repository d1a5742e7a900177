-- I6, I9: a lane's columns form a valid state, only a dead letter stops it, its times are not far in the future (I16).
-- Uses pk_lane, pk_lane_key, pk_subject, uq_dead_letter_open.
WITH found AS MATERIALIZED (
    SELECT l.*, s.name, s.last_sequence AS subject_sequence,
           (l.delivered_sequence > l.last_sequence OR l.delivered_sequence < 0
            OR l.last_sequence > s.last_sequence
            OR l.claimed_sequence > l.last_sequence
            OR (l.token IS NULL) <> (l.lease_until IS NULL)
            OR l.rescued NOT BETWEEN 0 AND l.attempt
            OR (l.token IS NOT NULL OR l.due_at IS NOT NULL) AND l.delivered_sequence = l.last_sequence
            OR l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < l.last_sequence
            OR l.lease_until > now() + interval '1 hour'
            OR l.due_at > now() + interval '31 days'
            OR k.subject_id IS NULL OR l.lanes > 1) AS suspect,
           k.subject_id IS NULL AS keyless
    FROM (SELECT *, count(*) OVER (PARTITION BY endpoint_id, subject_id) AS lanes FROM holdfast.lane) l
    JOIN holdfast.subject s ON s.id = l.subject_id
    LEFT JOIN holdfast.lane_key k ON k.endpoint_id = l.endpoint_id AND k.subject_id = l.subject_id
    WHERE l.endpoint_id = %(endpoint_id)s AND l.subject_id BETWEEN %(first_subject)s AND %(last_subject)s
),
violations AS (
    SELECT v.rule, f.name AS subject, f.subject_id, f.delivered_sequence + 1 AS sequence, v.detail
    FROM found f
    CROSS JOIN LATERAL (VALUES
        ('lane_state', f.delivered_sequence > f.last_sequence OR f.delivered_sequence < 0,
         format('delivered up to %%s, routed up to %%s', f.delivered_sequence, f.last_sequence)),
        ('lane_state', f.last_sequence > f.subject_sequence,
         format('routed up to %%s, and its subject is at %%s', f.last_sequence, f.subject_sequence)),
        ('lane_state', f.claimed_sequence > f.last_sequence,
         format('claimed up to %%s, routed up to %%s', f.claimed_sequence, f.last_sequence)),
        ('lane_state', (f.token IS NULL) <> (f.lease_until IS NULL), 'its lease has a token without an end, or an end without a token'),
        ('lane_state', f.rescued NOT BETWEEN 0 AND f.attempt,
         format('%%s attempts, of which %%s were rescued', f.attempt, f.rescued)),
        ('lane_state', (f.token IS NOT NULL OR f.due_at IS NOT NULL) AND f.delivered_sequence = f.last_sequence,
         'due or leased, with nothing to deliver'),
        ('lane_state', f.lanes > 1, format('exists %%s times', f.lanes)),
        ('lane_state', f.keyless, 'it has no key, so a second one could be created'),
        ('lane_stopped', CASE WHEN f.token IS NULL AND f.due_at IS NULL AND f.delivered_sequence < f.last_sequence
                              THEN NOT EXISTS (
                                  SELECT FROM holdfast.dead_letter d
                                  WHERE d.endpoint_id = f.endpoint_id AND d.subject_id = f.subject_id
                                    AND d.sequence > f.delivered_sequence AND d.sequence <= f.last_sequence
                                    AND d.resolution IS NULL
                                  OFFSET 0) END,
         format('stopped after %%s of %%s', f.delivered_sequence, f.last_sequence)),
        ('time_future', f.lease_until > now() + interval '1 hour', format('its lease ends at %%s', f.lease_until)),
        ('time_future', f.due_at > now() + interval '31 days', format('it is due at %%s', f.due_at))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE f.suspect AND v.violated
)
SELECT rule, count, subject, sequence, detail, NULL::timestamptz AS moment
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY subject_id) AS place
    FROM violations v
) numbered
WHERE place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'lanes', NULL FROM found
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'leases_run_out', NULL FROM found WHERE lease_until < now()
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'lanes_due', min(due_at) FROM found WHERE token IS NULL AND due_at <= now()
