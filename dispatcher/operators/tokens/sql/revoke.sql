-- Ends a living token; a login is worth what its token is worth, so it ends too.
-- By uq_access_token_name.
UPDATE holdfast.access_token SET revoked_at = now()
WHERE name = %(name)s AND login_of IS NULL AND revoked_at IS NULL
RETURNING id, name, role
