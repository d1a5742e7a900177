-- Records the use of a token; the caller does so once a minute.
-- Uses pk_access_token.
UPDATE holdfast.access_token SET last_used_at = now() WHERE id = %(id)s
