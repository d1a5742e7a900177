-- Stores the service's result, for a repeat of the same delivery.
-- Index: pk_inbox.
UPDATE {schema}.inbox SET result = %(result)s::jsonb WHERE key = %(key)s
