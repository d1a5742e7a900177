-- name: endpoints
-- Every endpoint that is not disabled, with its references to secrets, certificates and header values.
-- Reads the table: a handful of rows.
SELECT p.id, p.name, p.url, p.state::text AS state, p.secret_refs, p.allow_cidrs, p.connect_timeout_ms,
       p.total_timeout_ms, p.concurrency, p.schedule_seconds, p.order_policy::text AS order_policy,
       p.envelope::text AS envelope, p.headers, p.ca_ref, p.client_cert_ref, p.client_key_ref, p.rate_per_second,
       p.budget_seconds, p.breaker_threshold, p.slow_start_seconds, p.inquiry_path
FROM holdfast.endpoint p
WHERE p.state <> 'disabled'
ORDER BY p.name


-- name: roles
-- Holdfast's existing roles, and whether the login may SET ROLE to each. Before Postgres 16 every member may.
-- Uses the catalogue's own index (pg_authid_rolname_index).
SELECT rolname::text AS name, pg_has_role(current_user, oid, %(privilege)s) AS allowed
FROM pg_catalog.pg_roles
WHERE rolname = ANY (%(roles)s)


-- name: server
-- The server's version, the connected user, and the clock, read last for an exact difference.
-- Needs no index: it reads no table.
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS number,
       current_user::text AS name, clock_timestamp() AS now
