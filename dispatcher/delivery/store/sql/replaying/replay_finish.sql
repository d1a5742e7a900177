-- Ends a replay whose items are all settled, in the transaction that holds its row.
-- Uses pk_replay, ix_replay_item_due, ix_replay_item_leased.
UPDATE holdfast.replay
SET state = 'applied', finished_at = now()
WHERE id = %(id)s AND state = 'applying'
  AND NOT EXISTS (
      SELECT FROM holdfast.replay_item i
      WHERE i.replay_id = replay.id AND i.settled_at IS NULL AND i.token IS NULL
  )
  AND NOT EXISTS (
      SELECT FROM holdfast.replay_item i WHERE i.replay_id = replay.id AND i.token IS NOT NULL
  )
RETURNING id, item_count
