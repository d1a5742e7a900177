-- Returns the processes that ran within a day by the database's clock, with the range of their code. A sink is as recent
-- as its newest batch, and runs now while a session has its name; everybody may read these names. A dispatcher is as recent
-- as its heartbeat. Uses pk_batch, pk_code_session; a handful of rows.
SELECT kind, name, revision, works_from, seen_at
FROM (
    SELECT 'sink' AS kind, s.name, c.revision, c.works_from,
           CASE WHEN EXISTS (
               SELECT FROM pg_stat_activity AS a
               WHERE a.datname = current_database()
                 AND a.application_name = left('holdfast sink ' || s.name, 63)
           ) THEN clock_timestamp()
           ELSE greatest(s.started_at, c.seen_at, newest.written_at) END AS seen_at
    FROM holdfast.stream AS s
    LEFT JOIN holdfast.code_session AS c ON c.kind = 'sink' AND c.name = s.name
    LEFT JOIN LATERAL (
        SELECT b.written_at FROM holdfast.batch AS b
        WHERE b.stream = s.name AND b.query_id = s.query_id
        ORDER BY b.batch_id DESC LIMIT 1
    ) AS newest ON true
    UNION ALL
    SELECT 'dispatcher', d.host || ' pid ' || d.pid, c.revision, c.works_from, d.heartbeat_at
    FROM holdfast.dispatcher_instance AS d
    LEFT JOIN holdfast.code_session AS c ON c.kind = 'dispatcher' AND c.name = d.id::text
    UNION ALL
    SELECT c.kind, c.name, c.revision, c.works_from, c.seen_at
    FROM holdfast.code_session AS c WHERE c.kind = 'api'
) AS process
WHERE seen_at > clock_timestamp() - interval '1 day'
ORDER BY seen_at DESC
