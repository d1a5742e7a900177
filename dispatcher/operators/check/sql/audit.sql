-- I15: what a person changed in a time has its audit row, which is written in the transaction of the change.
-- Reads endpoint, stream, replay and operator_action once, and joins them by hashes; what was resolved in that time by a scan
-- of its table. Needs no index.
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
    -- A stream's first checkpoint is adopted by the sink, when it makes the stream.
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
      -- What a replay resolves was audited with the replay.
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
      -- What has no name of its own there has the moment of its row.
      AND (c.target IS NOT NULL OR c.moment NOT IN (SELECT acted_at FROM acts))
)
SELECT 'unaudited' AS rule, count, format('%%s was changed at %%s', what, moment) AS detail
FROM (
    SELECT v.*, count(*) OVER () AS count, row_number() OVER (ORDER BY moment, what) AS place FROM violations v
) numbered
WHERE place <= %(limit)s
