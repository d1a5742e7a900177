-- Removes this dispatcher's row, and those of dispatchers that ended a day ago without a word.
-- Uses pk_dispatcher_instance; a handful of rows.
DELETE FROM holdfast.dispatcher_instance
WHERE id = %(id)s OR heartbeat_at < now() - interval '1 day'
