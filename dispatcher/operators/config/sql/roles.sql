-- Holdfast's existing roles, and whether the login may SET ROLE to each. Before Postgres 16 every member may.
-- Uses the catalogue's own index (pg_authid_rolname_index).
SELECT rolname::text AS name, pg_has_role(current_user, oid, %(privilege)s) AS allowed
FROM pg_catalog.pg_roles
WHERE rolname = ANY (%(roles)s)
