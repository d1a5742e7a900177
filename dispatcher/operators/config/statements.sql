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
