-- Which of Holdfast's roles exist, and which of them the login may take on. Before Postgres 16 a member may.
-- Index: the catalogue's own (pg_authid_rolname_index).
SELECT rolname::text AS name, pg_has_role(current_user, oid, %(privilege)s) AS allowed
FROM pg_catalog.pg_roles
WHERE rolname = ANY (%(roles)s)
