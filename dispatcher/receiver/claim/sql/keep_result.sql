-- Keeps what the service answered, for the same delivery when it comes again.
-- Index: pk_inbox.
UPDATE {schema}.inbox SET result = %(result)s::jsonb WHERE key = %(key)s
