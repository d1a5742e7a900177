-- The dispatchers with the newest heartbeats, crashed ones too; alive means a heartbeat within the last minute.
-- Needs no index: a row per process.
SELECT host, pid, version, started_at, heartbeat_at, in_flight, draining,
       heartbeat_at > clock_timestamp() - interval '1 minute' AS alive
FROM holdfast.dispatcher_instance
ORDER BY heartbeat_at DESC
LIMIT 20
