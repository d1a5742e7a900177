-- Other replays, planned or applying, that share items with a replay, with their count.
-- Uses pk_replay_item of this replay, ix_replay_item_open, pk_replay.
SELECT y.id, y.state::text AS state, y.actor, count(*) AS entries
FROM holdfast.replay_item f
JOIN holdfast.replay_item i
  ON i.endpoint_id = f.endpoint_id AND i.subject_id = f.subject_id AND i.sequence = f.sequence
 AND i.settled_at IS NULL AND i.replay_id <> f.replay_id
JOIN holdfast.replay y ON y.id = i.replay_id AND y.state IN ('planned', 'applying')
WHERE f.replay_id = %(id)s AND f.settled_at IS NULL
GROUP BY y.id
ORDER BY y.created_at, y.id
