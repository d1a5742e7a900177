-- Deletes this dispatcher's row, and those of dispatchers whose last heartbeat is more than a day old.
-- Uses pk_dispatcher_instance; a handful of rows.
DELETE FROM holdfast.dispatcher_instance
WHERE id = %(id)s OR heartbeat_at < now() - interval '1 day'
