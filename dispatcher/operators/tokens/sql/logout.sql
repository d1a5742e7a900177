-- Revokes a login.
-- Uses pk_access_token.
UPDATE holdfast.access_token SET revoked_at = now()
WHERE id = %(id)s AND login_of IS NOT NULL AND revoked_at IS NULL
