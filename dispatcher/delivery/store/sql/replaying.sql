-- name: replay_applying
-- Locks the oldest replays that have a due item or no unsettled item left. Skips those that another dispatcher has locked, and
-- those that must wait, which would block later ones. Replays whose rate allows an item come first.
-- Uses ix_replay_applying, ix_replay_item_due, pk_replay_item, pk_endpoint_pace.
WITH open AS (
    SELECT p.id
    FROM holdfast.endpoint p
    JOIN holdfast.endpoint_pace e ON e.endpoint_id = p.id
    WHERE p.id = ANY (%(endpoint_ids)s::integer[]) AND p.state = 'active'
      AND (e.held_until IS NULL OR e.held_until <= now())
      AND (e.breaker NOT IN ('open', 'half_open') OR e.breaker_until <= now())
)
SELECT y.id, y.rate_per_second, y.paid_until,
       -- If the plan repeated nothing outside a key-retention window, no item may do so later.
       y.outside_window AND coalesce((y.counts ->> 'repeats')::bigint, 1) > 0 AS outside_window, y.actor, now() AS at
FROM holdfast.replay y
WHERE y.state = 'applying' AND y.verb = 'redeliver' AND (
    EXISTS (
        SELECT
        FROM open
        JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.endpoint_id = open.id
        WHERE i.settled_at IS NULL AND i.token IS NULL AND (i.due_at IS NULL OR i.due_at <= now())
          AND i.subject_id <> ALL ($held_at(open.id))
          AND NOT EXISTS (
              SELECT FROM holdfast.replay_item o
              WHERE o.replay_id = i.replay_id AND o.endpoint_id = i.endpoint_id
                AND o.subject_id = i.subject_id AND o.sequence < i.sequence AND o.settled_at IS NULL
          )
    )
    OR NOT EXISTS (
        SELECT FROM holdfast.replay_item i WHERE i.replay_id = y.id AND i.settled_at IS NULL
    )
)
ORDER BY y.rate_per_second IS NOT NULL AND y.paid_until > now(), y.created_at
LIMIT %(replays)s
FOR NO KEY UPDATE OF y SKIP LOCKED


-- name: replay_expired
-- Whether the lease of a replayed entry ended. A separate statement: the rescue itself opens every stored day.
-- Uses ix_replay_item_leased.
SELECT EXISTS (SELECT FROM holdfast.replay_item WHERE token IS NOT NULL AND lease_until < now()) AS expired


-- name: replay_finish
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


-- name: replay_hasten
-- Brings retries forward: lanes with these entries at their head become due now, with unchanged attempts. Skips lanes that
-- are being sent or that have another head by now. Uses pk_lane, in whose order rows are locked, pk_entry, pk_replay_item.
WITH waiting AS MATERIALIZED (
    SELECT l.endpoint_id, l.subject_id, i.sequence
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
             AS i (endpoint_id, subject_id, sequence)
    JOIN holdfast.lane l ON l.endpoint_id = i.endpoint_id AND l.subject_id = i.subject_id
    JOIN holdfast.endpoint p ON p.id = i.endpoint_id
    WHERE l.token IS NULL AND l.due_at > now() AND l.attempt > 0 AND l.delivered_sequence < i.sequence
      AND NOT EXISTS (
          SELECT FROM holdfast.entry e
          WHERE e.subject_id = i.subject_id AND e.sequence > l.delivered_sequence AND e.sequence < i.sequence
            AND e.created_at >= l.head_created_at - interval '1 hour'
            AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
      )
    ORDER BY l.endpoint_id, l.subject_id
    FOR NO KEY UPDATE OF l
),
hastened AS (
    UPDATE holdfast.lane
    SET due_at = now()
    FROM waiting
    WHERE lane.endpoint_id = waiting.endpoint_id AND lane.subject_id = waiting.subject_id
)
UPDATE holdfast.replay_item
SET settled_at = now(),
    detail = CASE WHEN waiting.sequence IS NULL THEN 'nothing done: it does not wait for a retry any more' END
FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
         AS i (endpoint_id, subject_id, sequence)
LEFT JOIN waiting
  ON waiting.endpoint_id = i.endpoint_id AND waiting.subject_id = i.subject_id AND waiting.sequence = i.sequence
WHERE replay_item.replay_id = %(id)s AND replay_item.endpoint_id = i.endpoint_id
  AND replay_item.subject_id = i.subject_id AND replay_item.sequence = i.sequence
RETURNING waiting.sequence IS NOT NULL AS done


-- name: replay_paid
-- Stores the time up to which a replay has used up its rate, in the transaction that holds its row.
-- Uses pk_replay.
UPDATE holdfast.replay SET paid_until = %(paid_until)s WHERE id = %(id)s


-- name: replay_release
-- Releases lanes that these dead letters stop: resolves the letters and makes the lanes due with a full schedule. Attempt
-- numbers continue. Skips lanes that such a letter no longer stops. Uses pk_lane, in whose order rows are locked,
-- uq_dead_letter_open, pk_replay_item.
WITH held AS MATERIALIZED (
    SELECT l.endpoint_id, l.subject_id, d.id, d.sequence, d.attempts
    FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
             AS i (endpoint_id, subject_id, sequence)
    JOIN holdfast.lane l ON l.endpoint_id = i.endpoint_id AND l.subject_id = i.subject_id
    JOIN holdfast.dead_letter d
      ON d.endpoint_id = i.endpoint_id AND d.subject_id = i.subject_id AND d.sequence = i.sequence
     AND d.resolution IS NULL
    WHERE l.token IS NULL AND l.due_at IS NULL AND l.delivered_sequence < i.sequence
    ORDER BY l.endpoint_id, l.subject_id
    FOR NO KEY UPDATE OF l, d
),
resolved AS (
    UPDATE holdfast.dead_letter
    SET resolution = 'redelivered', resolved_at = now(), resolved_by = %(actor)s,
        window_waived = dead_letter.window_waived OR %(outside_window)s
    FROM held
    WHERE dead_letter.id = held.id
),
released AS (
    UPDATE holdfast.lane
    SET due_at = now(), attempt = greatest(lane.attempt, held.attempts),
        rescued = greatest(lane.attempt, held.attempts), tried_since_us = NULL
    FROM held
    WHERE lane.endpoint_id = held.endpoint_id AND lane.subject_id = held.subject_id
)
UPDATE holdfast.replay_item
SET settled_at = now(),
    detail = CASE WHEN held.id IS NULL THEN 'nothing done: it does not hold its lane any more' END
FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[])
         AS i (endpoint_id, subject_id, sequence)
LEFT JOIN held
  ON held.endpoint_id = i.endpoint_id AND held.subject_id = i.subject_id AND held.sequence = i.sequence
WHERE replay_item.replay_id = %(id)s AND replay_item.endpoint_id = i.endpoint_id
  AND replay_item.subject_id = i.subject_id AND replay_item.sequence = i.sequence
RETURNING held.id IS NOT NULL AS done


-- name: replay_rescue
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


-- name: replay_settle
-- Ends leases of replayed entries whose token is still the item's, and returns those items; the others were rescued. A
-- delivered entry resolves its dead letter. Uses ix_replay_item_open, pk_replay, uq_dead_letter_open, pk_endpoint_pace,
-- pk_endpoint.
WITH held AS MATERIALIZED (
    SELECT r.*, i.replay_id, y.actor, y.state,
           p.failures > 0 OR p.breaker <> 'closed' OR e.rate_per_second IS NOT NULL AS paced
    FROM unnest(
        %(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(sequences)s::bigint[], %(tokens)s::uuid[],
        %(outcomes)s::holdfast.outcome[], %(details)s::text[], %(delays_us)s::bigint[],
        %(charged)s::integer[], %(settled)s::boolean[]
    ) AS r (endpoint_id, subject_id, sequence, token, outcome, detail, delay_us, charged, settled)
    JOIN holdfast.replay_item i
      ON i.endpoint_id = r.endpoint_id AND i.subject_id = r.subject_id AND i.sequence = r.sequence
     AND i.token = r.token AND i.settled_at IS NULL
    JOIN holdfast.replay y ON y.id = i.replay_id
    JOIN holdfast.endpoint_pace p ON p.endpoint_id = r.endpoint_id
    JOIN holdfast.endpoint e ON e.id = r.endpoint_id
    ORDER BY r.endpoint_id, r.subject_id, r.sequence
    FOR NO KEY UPDATE OF i
),
resolved AS (
    UPDATE holdfast.dead_letter d
    SET resolution = 'redelivered', resolved_at = now(), resolved_by = held.actor
    FROM held
    WHERE held.outcome = 'delivered' AND d.endpoint_id = held.endpoint_id AND d.subject_id = held.subject_id
      AND d.sequence = held.sequence AND d.resolution IS NULL
)
UPDATE holdfast.replay_item
SET token = NULL,
    lease_until = NULL,
    attempt = replay_item.attempt + held.charged,
    outcome = coalesce(held.outcome, replay_item.outcome),
    detail = held.detail,
    -- An item of a cancelled replay is not retried.
    settled_at = CASE WHEN held.settled OR held.state <> 'applying' AND held.outcome IS NOT NULL THEN now() END,
    due_at = now() + coalesce(held.delay_us, 0) * interval '1 microsecond'
FROM held
WHERE replay_item.replay_id = held.replay_id AND replay_item.endpoint_id = held.endpoint_id
  AND replay_item.subject_id = held.subject_id AND replay_item.sequence = held.sequence
RETURNING replay_item.endpoint_id, replay_item.subject_id, held.token, replay_item.due_at,
          now() AS settled_at, held.paced
