-- Revokes a valid token; its logins end with it.
-- Uses uq_access_token_name.
UPDATE holdfast.access_token SET revoked_at = now()
WHERE name = %(name)s AND login_of IS NULL AND revoked_at IS NULL
RETURNING id, name, role
