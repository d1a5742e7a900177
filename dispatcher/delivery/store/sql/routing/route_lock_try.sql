-- As route_lock_shared.sql, for whoever cannot wait: not for an endpoint that is being added, and not for long for a lane that
-- somebody else changes. An entry is routed to each endpoint that takes it. Needs no index.
SELECT set_config('lock_timeout', '100ms', true) AS patience,
       pg_try_advisory_xact_lock_shared(hashtext('holdfast.route')) AS free,
       (SELECT count(*) FROM holdfast.endpoint) AS endpoints
