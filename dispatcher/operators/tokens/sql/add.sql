-- Adds a token, or a login of one, of which only the hash is known here.
-- Needs uq_access_token_sha256, and uq_access_token_name: a name is one living token's.
INSERT INTO holdfast.access_token (id, name, role, sha256, created_by, expires_at, login_of, owner)
VALUES (%(id)s, %(name)s, %(role)s, %(sha256)s, %(actor)s, now() + %(lasts)s, %(login_of)s, %(owner)s)
RETURNING id, name, owner, role, created_at, created_by, expires_at
