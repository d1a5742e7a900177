-- Earlier and planned reissues of an entry, the oldest first; without those cancelled before they wrote it.
-- Reads all of replay, a small table of people's plans; uses pk_replay_item.
SELECT y.id, y.state::text AS state, y.actor, y.created_at, y.finished_at, i.new_key
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.key = %(key)s
WHERE y.verb = 'reissue' AND (y.state <> 'cancelled' OR i.settled_at IS NOT NULL)
GROUP BY y.id, i.new_key
ORDER BY y.created_at, y.id
