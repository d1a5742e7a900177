-- What a receiver's inbox knows of some keys.
-- Uses pk_inbox.
SELECT key, subject, sequence, outcome, body_sha256, received_at
FROM {schema}.inbox
WHERE key = ANY (%(keys)s::text[])
