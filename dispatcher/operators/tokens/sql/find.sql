-- The holder of a secret, while both it and the token of a login are valid.
-- Uses uq_access_token_sha256, pk_access_token.
SELECT t.id, coalesce(o.name, t.name) AS name, coalesce(o.role, t.role) AS role, coalesce(o.owner, t.owner) AS owner, t.expires_at,
    t.login_of IS NOT NULL AS is_login,
    t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute' AS stale
FROM holdfast.access_token t LEFT JOIN holdfast.access_token o ON o.id = t.login_of
WHERE t.sha256 = %(sha256)s AND t.revoked_at IS NULL AND t.expires_at > now()
    AND (t.login_of IS NULL OR (o.revoked_at IS NULL AND o.expires_at > now()))
