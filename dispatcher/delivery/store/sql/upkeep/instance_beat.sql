-- Records a heartbeat of this dispatcher.
-- Uses pk_dispatcher_instance.
INSERT INTO holdfast.dispatcher_instance AS instance (id, host, pid, version, in_flight, draining)
VALUES (%(id)s, %(host)s, %(pid)s, %(version)s, %(in_flight)s, %(draining)s)
ON CONFLICT (id) DO UPDATE
SET heartbeat_at = now(), in_flight = excluded.in_flight, draining = excluded.draining
RETURNING clock_timestamp() AS at
