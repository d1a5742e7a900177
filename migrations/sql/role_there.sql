-- Returns whether a role exists.
-- Index: the catalogue's own (pg_authid_rolname_index).
SELECT rolname FROM pg_catalog.pg_roles WHERE rolname = %(role)s
