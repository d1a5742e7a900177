-- Whether the server refuses writes by its own settings, not this login's; and since when a heartbeat is one of a living
-- dispatcher: for a minute, or as of the newest where none can be written while dispatchers are connected. Their sessions are
-- known by name, which every role sees. Needs no index: a row per process.
SELECT server.read_only,
       CASE WHEN server.read_only AND server.connected THEN least(server.newest, clock_timestamp())
            ELSE clock_timestamp() END - interval '1 minute' AS alive_since
FROM (
    SELECT pg_is_in_recovery() OR EXISTS (
               SELECT FROM pg_settings
               WHERE name = 'default_transaction_read_only' AND setting = 'on'
                 AND source NOT IN ('client', 'user', 'database user', 'session')
           ) AS read_only,
           EXISTS (
               SELECT FROM pg_stat_activity
               WHERE datname = current_database() AND application_name = 'holdfast-dispatcher'
           ) AS connected,
           (SELECT max(heartbeat_at) FROM holdfast.dispatcher_instance) AS newest
) server
