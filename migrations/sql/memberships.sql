-- Returns the existing Holdfast roles, and whether the current user can SET ROLE to each.
-- Index: the catalogue's own (pg_authid_rolname_index).
SELECT rolname, pg_has_role(current_user, oid, %(privilege)s)
FROM pg_catalog.pg_roles
WHERE rolname = ANY (%(roles)s)
