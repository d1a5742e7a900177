-- Replays that are being applied and have not sent an entry yet.
-- Reads replay, a row per plan; uses pk_replay_item.
SELECT DISTINCT r.id
FROM holdfast.replay r
JOIN holdfast.replay_item i ON i.replay_id = r.id
WHERE r.state = 'applying' AND i.subject_id = %(subject_id)s AND i.sequence = %(sequence)s AND i.settled_at IS NULL
