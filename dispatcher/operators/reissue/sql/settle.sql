-- Marks an entry as reissued; what is marked already is left as it is.
-- Uses pk_replay_item.
UPDATE holdfast.replay_item
SET settled_at = now(), detail = %(detail)s
WHERE replay_id = %(id)s AND place = %(place)s AND settled_at IS NULL
