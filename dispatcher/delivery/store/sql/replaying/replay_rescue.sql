-- Ends expired leases of replayed entries: records one `unknown` attempt for each and makes the item due again, or settles it
-- if its replay is cancelled. Uses ix_replay_item_leased, pk_replay, pk_attempt; skips items that are being settled.
WITH expired AS MATERIALIZED (
    SELECT i.*, y.state
    FROM holdfast.replay_item i
    JOIN holdfast.replay y ON y.id = i.replay_id
    WHERE i.token IS NOT NULL AND i.lease_until < now()
    ORDER BY i.lease_until
    LIMIT %(items)s
    FOR NO KEY UPDATE OF i SKIP LOCKED
),
recorded AS (
    INSERT INTO holdfast.attempt (
        endpoint_id, subject_id, sequence, number, finished_at, token, outcome, error, retry_at
    )
    SELECT x.endpoint_id, x.subject_id, x.sequence,
           1 + coalesce((
               SELECT max(a.number)
               FROM holdfast.attempt a
               WHERE a.endpoint_id = x.endpoint_id AND a.subject_id = x.subject_id AND a.sequence = x.sequence
                 AND a.finished_at >= CASE WHEN x.created_at > now() THEN '-infinity'
                                           ELSE x.created_at - interval '1 hour' END
           ), 0),
           now(), x.token, 'unknown', 'the lease ran out', CASE WHEN x.state = 'applying' THEN now() END
    FROM expired x
    RETURNING endpoint_id, subject_id, sequence, number
),
freed AS (
    UPDATE holdfast.replay_item
    SET token = NULL, lease_until = NULL, outcome = 'unknown', due_at = now(),
        settled_at = CASE WHEN x.state <> 'applying' THEN now() END,
        detail = 'the lease ran out'
    FROM expired x
    WHERE replay_item.replay_id = x.replay_id AND replay_item.endpoint_id = x.endpoint_id
      AND replay_item.subject_id = x.subject_id AND replay_item.sequence = x.sequence
)
SELECT endpoint_id, subject_id, sequence, number
FROM recorded
ORDER BY endpoint_id, subject_id, sequence
