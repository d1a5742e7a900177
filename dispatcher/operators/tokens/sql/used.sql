-- Takes down that a token was used; once a minute is enough.
-- By pk_access_token.
UPDATE holdfast.access_token SET last_used_at = now() WHERE id = %(id)s
