-- The newest key of a reissue of each entry.
-- Reads all of replay, a small table of people's plans; uses pk_replay_item.
SELECT DISTINCT ON (i.key) i.key, i.new_key
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id
WHERE y.verb = 'reissue' AND i.settled_at IS NOT NULL AND i.key = ANY (%(keys)s::uuid[])
ORDER BY i.key, y.created_at DESC
