-- name: list
-- Every dispatcher that did not end in order, also crashed ones; alive means a heartbeat since `common/heartbeats`.
-- Needs no index: a row per process.
SELECT id, host, pid, version, started_at, heartbeat_at,
       greatest(extract(epoch FROM clock_timestamp() - heartbeat_at), 0)::double precision AS heartbeat_age_seconds,
       in_flight, draining, heartbeat_at > %(alive_since)s AS alive
FROM holdfast.dispatcher_instance
ORDER BY heartbeat_at DESC, id
LIMIT %(limit)s
