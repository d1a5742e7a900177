-- Claims the next items of a replay: leases entries to send again, and returns the kind of the other items. For each subject
-- and endpoint only the item with the lowest sequence, until it is settled. Settles an item whose entry is missing. Items of a
-- subject on hold wait: whoever holds it changes the lane's row, so that row is locked, and then read again.
-- Uses ix_replay_item_due, ix_replay_item_open, pk_replay_item, pk_lane, ix_lane_on_hold, pk_entry, pk_attempt, pk_endpoint_pace.
WITH due AS MATERIALIZED (
    SELECT l.endpoint_id, l.subject_id, l.sequence, l.created_at, l.key, l.kind, l.attempt, p.key_window_seconds
    FROM unnest(%(endpoint_ids)s::integer[], %(items)s::integer[]) AS w (endpoint_id, items)
    JOIN holdfast.endpoint e ON e.id = w.endpoint_id AND e.state = 'active'
    JOIN holdfast.endpoint_pace p ON p.endpoint_id = w.endpoint_id
    CROSS JOIN LATERAL (
        SELECT i.*
        FROM holdfast.replay_item i
        WHERE i.replay_id = %(id)s AND i.endpoint_id = w.endpoint_id
          AND i.settled_at IS NULL AND i.token IS NULL AND (i.due_at IS NULL OR i.due_at <= now())
          AND NOT EXISTS (
              SELECT FROM holdfast.replay_item o
              WHERE o.replay_id = i.replay_id AND o.endpoint_id = i.endpoint_id AND o.subject_id = i.subject_id
                AND o.sequence < i.sequence AND o.settled_at IS NULL
          )
          -- Requests in flight of a cancelled replay end first: two attempts would get the same number.
          AND NOT EXISTS (
              SELECT FROM holdfast.replay_item o
              WHERE o.endpoint_id = i.endpoint_id AND o.subject_id = i.subject_id AND o.sequence = i.sequence
                AND o.settled_at IS NULL AND o.token IS NOT NULL
          )
          -- Here too, so that many of them do not fill the limit.
          AND i.subject_id <> ALL ($held_at(w.endpoint_id))
        ORDER BY i.place
        LIMIT w.items
        FOR NO KEY UPDATE SKIP LOCKED
    ) l
    LEFT JOIN LATERAL (
        SELECT true AS locked
        FROM holdfast.lane
        WHERE lane.endpoint_id = l.endpoint_id AND lane.subject_id BETWEEN l.subject_id AND l.subject_id AND NOT $on_hold(lane)
        ORDER BY lane.subject_id DESC, lane.turn DESC
        LIMIT 1
        -- A lock of live traffic is short: the item is taken the next time.
        FOR NO KEY UPDATE SKIP LOCKED
    ) lane ON true
    -- Without a lane, nobody can hold the subject there.
    WHERE lane.locked OR NOT EXISTS (
        SELECT FROM holdfast.lane_key k WHERE k.endpoint_id = l.endpoint_id AND k.subject_id = l.subject_id
    )
    ORDER BY l.place
    LIMIT %(most)s
),
taken AS MATERIALIZED (
    SELECT d.*, n.body, n.traceparent, n.sequence IS NULL AS gone, coalesce(tried.number, 0) AS number,
           coalesce(tried.first_at, d.created_at) AS first_at, coalesce(tried.put_off_seconds, 0) AS put_off_seconds
    FROM due d
    LEFT JOIN holdfast.entry n
      ON d.kind = 'resend'
     AND n.subject_id = d.subject_id AND n.sequence = d.sequence AND n.created_at = d.created_at
    CROSS JOIN LATERAL (
        SELECT max(a.number) AS number, min(a.finished_at) FILTER (WHERE a.number = 1) AS first_at,
               -- Total Retry-After since the replay began, which counts towards its budget.
               extract(epoch FROM sum(a.retry_at - a.finished_at) FILTER (
                   WHERE a.outcome = 'throttled'
                     AND a.finished_at >= (SELECT y.applied_at FROM holdfast.replay y WHERE y.id = %(id)s)
               ))::double precision AS put_off_seconds
        FROM holdfast.attempt a
        WHERE d.kind = 'resend'
          AND a.endpoint_id = d.endpoint_id AND a.subject_id = d.subject_id AND a.sequence = d.sequence
          AND a.finished_at >= CASE WHEN d.created_at > now() THEN '-infinity'
                                    ELSE d.created_at - interval '1 hour' END
    ) tried
),
marked AS (
    UPDATE holdfast.replay_item
    SET token = CASE WHEN t.gone THEN NULL ELSE %(token)s::uuid END,
        lease_until = CASE WHEN t.gone THEN NULL ELSE now() + %(lease_seconds)s * interval '1 second' END,
        settled_at = CASE WHEN t.gone THEN now() END,
        detail = CASE WHEN t.gone THEN 'not sent: its entry is no longer stored' ELSE replay_item.detail END
    FROM taken t
    WHERE t.kind = 'resend' AND replay_item.replay_id = %(id)s AND replay_item.endpoint_id = t.endpoint_id
      AND replay_item.subject_id = t.subject_id AND replay_item.sequence = t.sequence
)
SELECT endpoint_id, subject_id, sequence, created_at, key, kind::text AS kind, attempt, number, traceparent, body, gone, put_off_seconds,
       number > 0 AND NOT %(outside_window)s
           AND coalesce(first_at < now() - key_window_seconds * interval '1 second', false) AS forgotten
FROM taken
ORDER BY endpoint_id, subject_id, sequence
