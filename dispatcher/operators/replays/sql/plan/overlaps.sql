-- Other replays, planned or applying, that have some of the found entries, with their count.
-- Reads all of a temporary table; uses ix_replay_item_open, pk_replay.
SELECT y.id, y.state::text AS state, y.actor, count(*) AS entries
FROM pg_temp.holdfast_found f
JOIN holdfast.replay_item i
  ON i.endpoint_id = f.endpoint_id AND i.subject_id = f.subject_id AND i.sequence = f.sequence
 AND i.settled_at IS NULL
JOIN holdfast.replay y ON y.id = i.replay_id AND y.state IN ('planned', 'applying')
WHERE (f.kind <> 'nothing' OR f.taken_by IS NOT NULL) AND y.id <> %(id)s
GROUP BY y.id
ORDER BY y.created_at, y.id
