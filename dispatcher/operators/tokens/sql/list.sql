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
