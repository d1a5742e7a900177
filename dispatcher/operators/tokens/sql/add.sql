-- Adds a token, or a login of one, with the hash of its secret.
-- Unique by uq_access_token_sha256 and, among valid tokens, uq_access_token_name.
INSERT INTO holdfast.access_token (id, name, role, sha256, created_by, expires_at, login_of, owner)
VALUES (%(id)s, %(name)s, %(role)s, %(sha256)s, %(actor)s, now() + %(lasts)s, %(login_of)s, %(owner)s)
RETURNING id, name, owner, role, created_at, created_by, expires_at
