-- Which of Holdfast's roles exist, and which of them the current user may take on with SET ROLE.
-- Index: the catalogue's own (pg_authid_rolname_index).
SELECT rolname, pg_has_role(current_user, oid, %(privilege)s)
FROM pg_catalog.pg_roles
WHERE rolname = ANY (%(roles)s)
