-- name: add
-- Adds a token, or a login of one, with the hash of its secret.
-- Unique by uq_access_token_sha256 and, among valid tokens, uq_access_token_name.
INSERT INTO holdfast.access_token (id, name, role, sha256, created_by, expires_at, login_of, owner)
VALUES (%(id)s, %(name)s, %(role)s, %(sha256)s, %(actor)s, now() + %(lasts)s, %(login_of)s, %(owner)s)
RETURNING id, name, owner, role, created_at, created_by, expires_at


-- name: find
-- The holder of a secret, while both it and the token of a login are valid.
-- Uses uq_access_token_sha256, pk_access_token.
SELECT t.id, coalesce(o.name, t.name) AS name, coalesce(o.role, t.role) AS role, coalesce(o.owner, t.owner) AS owner, t.expires_at,
    t.login_of IS NOT NULL AS is_login,
    t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute' AS stale
FROM holdfast.access_token t LEFT JOIN holdfast.access_token o ON o.id = t.login_of
WHERE t.sha256 = %(sha256)s AND t.revoked_at IS NULL AND t.expires_at > now()
    AND (t.login_of IS NULL OR (o.revoked_at IS NULL AND o.expires_at > now()))


-- name: forget
-- Deletes logins that ended more than a day ago; runs as the schema's owner.
-- Reads the whole table, which is small.
SELECT holdfast.forget_logins() AS forgotten


-- name: list
-- Every token with its valid logins; revoked and expired tokens too, because the audit trail names them.
-- Reads the whole table, which is small.
SELECT t.id, t.name, t.owner, t.role, t.created_at, t.created_by, t.expires_at, t.revoked_at,
    greatest(t.last_used_at, max(l.last_used_at)) AS last_used_at,
    count(l.id) FILTER (WHERE l.expires_at > now() AND l.revoked_at IS NULL) AS logins,
    CASE WHEN t.revoked_at IS NOT NULL THEN 'revoked'
         WHEN t.expires_at <= now() THEN 'expired' ELSE 'valid' END AS state
FROM holdfast.access_token t LEFT JOIN holdfast.access_token l ON l.login_of = t.id
WHERE t.login_of IS NULL
GROUP BY t.id ORDER BY t.name, t.created_at


-- name: logout
-- Revokes a login.
-- Uses pk_access_token.
UPDATE holdfast.access_token SET revoked_at = now()
WHERE id = %(id)s AND login_of IS NOT NULL AND revoked_at IS NULL


-- name: revoke
-- Revokes a valid token; its logins end with it.
-- Uses uq_access_token_name.
UPDATE holdfast.access_token SET revoked_at = now()
WHERE name = %(name)s AND login_of IS NULL AND revoked_at IS NULL
RETURNING id, name, role


-- name: used
-- Records the use of a token; the caller does so once a minute.
-- Uses pk_access_token.
UPDATE holdfast.access_token SET last_used_at = now() WHERE id = %(id)s
