-- Marks an entry as reissued, unless it is marked already.
-- Uses pk_replay_item.
UPDATE holdfast.replay_item
SET settled_at = now(), detail = %(detail)s
WHERE replay_id = %(id)s AND place = %(place)s AND settled_at IS NULL
