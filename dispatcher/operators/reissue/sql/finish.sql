-- Ends a reissue when everything is written.
-- Uses pk_replay, pk_replay_item.
UPDATE holdfast.replay
SET state = 'applied', applied_at = coalesce(applied_at, now()), finished_at = now()
WHERE id = %(id)s AND state = 'planned'
  AND NOT EXISTS (SELECT FROM holdfast.replay_item i WHERE i.replay_id = replay.id AND i.settled_at IS NULL)
