-- The dispatchers with the newest heartbeats, crashed ones too; alive means a heartbeat since
-- `common/heartbeats.sql`.
-- Needs no index: a row per process.
SELECT host, pid, version, started_at, heartbeat_at, in_flight, draining,
       heartbeat_at > %(alive_since)s AS alive
FROM holdfast.dispatcher_instance
ORDER BY heartbeat_at DESC
LIMIT 20
