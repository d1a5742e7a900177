-- The living dispatchers: with a heartbeat since `common/heartbeats.sql`.
-- Needs no index: a row per process.
SELECT id, host, pid, version, started_at, heartbeat_at, in_flight, draining
FROM holdfast.dispatcher_instance
WHERE heartbeat_at > %(alive_since)s
ORDER BY started_at
