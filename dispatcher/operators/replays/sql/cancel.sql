-- Ends a replay: nothing of it is begun any more; what is in flight comes to its end and is booked. What was tried is not tried
-- again, so it is settled as what it came to. Uses pk_replay, ix_replay_item_due.
WITH tried AS (
    UPDATE holdfast.replay_item
    SET settled_at = now()
    WHERE replay_id = %(id)s AND settled_at IS NULL AND token IS NULL AND outcome IS NOT NULL
)
UPDATE holdfast.replay
SET state = 'cancelled', cancelled_by = %(actor)s, cancelled_at = now()
WHERE id = %(id)s
