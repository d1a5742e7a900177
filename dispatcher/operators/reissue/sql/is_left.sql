-- Whether an entry of a reissue is still to be written.
-- Uses pk_replay_item.
SELECT EXISTS (
    SELECT FROM holdfast.replay_item WHERE replay_id = %(id)s AND place = %(place)s AND settled_at IS NULL
) AS is_left
