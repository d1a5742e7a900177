-- As route_lock_shared.sql, for a transaction that must not wait: not at all for an endpoint being added, and only briefly for
-- a lane that is locked. Also returns the number of endpoints that may get an entry. Needs no index.
SELECT set_config('lock_timeout', '100ms', true) AS patience,
       pg_try_advisory_xact_lock_shared(hashtext('holdfast.route')) AS free,
       (SELECT count(*) FROM holdfast.endpoint) AS endpoints
