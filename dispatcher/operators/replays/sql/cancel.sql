-- Cancels a replay: no further item begins; requests in flight end and are recorded. Items that were tried are not tried again, so
-- they are settled with their last outcome. Uses pk_replay, ix_replay_item_due.
WITH tried AS (
    UPDATE holdfast.replay_item
    SET settled_at = now()
    WHERE replay_id = %(id)s AND settled_at IS NULL AND token IS NULL AND outcome IS NOT NULL
)
UPDATE holdfast.replay
SET state = 'cancelled', cancelled_by = %(actor)s, cancelled_at = now()
WHERE id = %(id)s
