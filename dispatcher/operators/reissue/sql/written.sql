-- The entries that a reissue has written and not recorded, because the process crashed in between.
-- Uses pk_replay, pk_replay_item, pk_entry_key.
SELECT DISTINCT ON (i.place) i.place, i.key, i.new_key, i.created_at AS written_at, i.subject_id, i.sequence, y.reason
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.settled_at IS NULL
JOIN holdfast.entry_key k ON k.key = i.new_key
WHERE y.id = %(id)s
ORDER BY i.place
