-- Dispatchers with a heartbeat within the last minute.
-- Needs no index: a row per process.
SELECT id, host, pid, version, started_at, heartbeat_at, in_flight, draining
FROM holdfast.dispatcher_instance
WHERE heartbeat_at > clock_timestamp() - interval '1 minute'
ORDER BY started_at
