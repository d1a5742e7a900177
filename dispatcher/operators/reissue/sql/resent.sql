-- The replays that will send an entry under its own key, or have it in flight.
-- Uses ix_replay_item_open, once for each endpoint, and pk_replay.
SELECT DISTINCT y.id, y.actor
FROM holdfast.endpoint p
JOIN holdfast.replay_item i
  ON i.endpoint_id = p.id AND i.subject_id = %(subject_id)s AND i.sequence = %(sequence)s AND i.settled_at IS NULL
JOIN holdfast.replay y ON y.id = i.replay_id AND y.verb = 'redeliver'
WHERE y.state = 'applying' OR i.token IS NOT NULL
ORDER BY y.id
