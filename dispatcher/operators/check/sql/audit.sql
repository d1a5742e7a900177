-- I15: every change of a person in a time range has its audit row, written in the transaction of the change.
-- Reads endpoint, stream, replay and operator_action once, with hash joins; finds resolutions in that range by a scan.
-- Needs no index.
WITH acts AS MATERIALIZED (
    SELECT acted_at, action, target FROM holdfast.operator_action
    -- A transaction may have begun before its change.
    WHERE acted_at >= %(since)s::timestamptz - interval '10 minutes'
),
changes AS (
    SELECT p.name AS target, m.moment, m.moment AS begun, 'endpoint ' || p.name AS what
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (SELECT DISTINCT unnest(ARRAY[p.created_at, p.updated_at]) AS moment) m
    UNION ALL
    -- The sink adopts a stream's first checkpoint when it creates the stream.
    SELECT name, adopted_at, adopted_at - interval '10 minutes', 'stream ' || name
    FROM holdfast.stream
    WHERE adopted_at > created_at + interval '1 minute'
    UNION ALL
    SELECT 'quarantine ' || id, resolved_at, resolved_at - interval '10 minutes', 'quarantined row ' || id
    FROM holdfast.quarantine
    WHERE resolved_at >= %(since)s AND resolved_at < %(until)s
    UNION ALL
    SELECT 'dead letter ' || d.id, d.resolved_at, d.resolved_at - interval '10 minutes', 'dead letter ' || d.id
    FROM holdfast.dead_letter d
    WHERE d.resolved_at >= %(since)s AND d.resolved_at < %(until)s
      -- Resolutions by a replay are audited with the replay.
      AND NOT EXISTS (
          SELECT FROM holdfast.replay_item i
          WHERE i.endpoint_id = d.endpoint_id AND i.subject_id = d.subject_id AND i.sequence = d.sequence)
    UNION ALL
    SELECT NULL, created_at, created_at, 'replay ' || id FROM holdfast.replay
),
violations AS (
    SELECT DISTINCT c.what, c.moment
    FROM changes c
    WHERE c.moment >= %(since)s AND c.moment < %(until)s
      AND NOT EXISTS (
          SELECT FROM acts a
          WHERE a.target = c.target AND a.acted_at BETWEEN c.begun AND c.moment)
      -- A replay has no target there; its audit row has the same moment.
      AND (c.target IS NOT NULL OR c.moment NOT IN (SELECT acted_at FROM acts))
)
SELECT 'unaudited' AS rule, count, format('%%s was changed at %%s', what, moment) AS detail
FROM (
    SELECT v.*, count(*) OVER () AS count, row_number() OVER (ORDER BY moment, what) AS place FROM violations v
) numbered
WHERE place <= %(limit)s
