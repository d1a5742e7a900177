-- The entries that a reissue has not written yet, in order.
-- Uses pk_replay, pk_replay_item.
SELECT DISTINCT ON (i.place) i.place, i.key, i.new_key, i.created_at AS written_at, i.subject_id, i.sequence, y.reason
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.settled_at IS NULL
WHERE y.id = %(id)s
ORDER BY i.place
