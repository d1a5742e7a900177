-- The dispatchers that gave a sign of life last, dead ones with them; alive within the last minute, as in `holdfast status`.
-- Needs no index: a row per process.
SELECT host, pid, version, started_at, heartbeat_at, in_flight, draining,
       heartbeat_at > clock_timestamp() - interval '1 minute' AS alive
FROM holdfast.dispatcher_instance
ORDER BY heartbeat_at DESC
LIMIT 20
