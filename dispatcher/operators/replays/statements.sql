-- name: apply
-- Releases a planned replay to the dispatchers.
-- Uses pk_replay.
UPDATE holdfast.replay
SET state = 'applying', applied_at = now(), counts = counts || %(counts)s
WHERE id = %(id)s


-- name: approve
-- Records the approval of a plan that may repeat business actions.
-- Uses pk_replay.
UPDATE holdfast.replay
SET approved_by = %(actor)s, approved_at = now()
WHERE id = %(id)s


-- name: cancel
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


-- name: items
-- Items of a replay in sending order, after a place.
-- Uses ix_replay_item_place, pk_subject, pk_endpoint.
SELECT i.place, i.endpoint_id, p.name AS endpoint, i.subject_id, s.name AS subject, i.sequence, i.created_at AS written_at, i.key, i.new_key,
       i.kind::text AS kind, i.attempt, i.due_at, i.lease_until, i.outcome::text AS outcome, i.settled_at, i.detail
FROM holdfast.replay_item i
JOIN holdfast.endpoint p ON p.id = i.endpoint_id
JOIN holdfast.subject s ON s.id = i.subject_id
WHERE i.replay_id = %(id)s AND i.place > %(after)s
ORDER BY i.place
LIMIT %(limit)s


-- name: list
-- Replays, the newest first, created before a moment if given.
-- Reads all of replay, a small table of people's plans.
SELECT id, verb::text AS verb, state::text AS state, filter, item_count, reason, actor, created_at, applied_at,
       rate_per_second, cancelled_at, finished_at
FROM holdfast.replay
WHERE %(before)s::timestamptz IS NULL OR created_at < %(before)s::timestamptz
ORDER BY created_at DESC, id
LIMIT %(limit)s


-- name: named
-- The replays whose id begins with some hex digits: at most two rows, to tell an ambiguous prefix.
-- Uses pk_replay.
SELECT id
FROM holdfast.replay
WHERE id BETWEEN rpad(%(digits)s::text, 32, '0')::uuid AND rpad(%(digits)s::text, 32, 'f')::uuid
LIMIT 2


-- name: obstacles
-- The endpoints to which nothing is sent now, and why; and a row without a name while no dispatcher is alive, as in
-- `holdfast status`. Uses uq_endpoint_name, pk_endpoint_pace; dispatcher_instance has a row per process.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, p.state_reason, r.breaker::text AS breaker,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
WHERE p.name = ANY (%(names)s) AND (p.state <> 'active' OR r.breaker = 'open' OR r.held_until > now())
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL
WHERE NOT EXISTS (
    SELECT FROM holdfast.dispatcher_instance WHERE heartbeat_at > %(alive_since)s
)
ORDER BY endpoint NULLS LAST


-- name: overlaps_stored
-- Other replays, planned or applying, that share items with a replay, with their count.
-- Uses pk_replay_item of this replay, ix_replay_item_open, pk_replay.
SELECT y.id, y.state::text AS state, y.actor, count(*) AS entries
FROM holdfast.replay_item f
JOIN holdfast.replay_item i
  ON i.endpoint_id = f.endpoint_id AND i.subject_id = f.subject_id AND i.sequence = f.sequence
 AND i.settled_at IS NULL AND i.replay_id <> f.replay_id
JOIN holdfast.replay y ON y.id = i.replay_id AND y.state IN ('planned', 'applying')
WHERE f.replay_id = %(id)s AND f.settled_at IS NULL
GROUP BY y.id
ORDER BY y.created_at, y.id


-- name: repeats_used
-- The business actions that a person repeated within 24 hours, or may still repeat by plans that need no approval: reissued keys
-- at each endpoint, and deliveries of keys that receivers may have forgotten. The plan with the given id is not counted.
-- Reads all of replay, a small table of people's plans; uses pk_replay_item.
SELECT coalesce(sum(coalesce((y.counts ->> 'repeats')::bigint,
    CASE y.verb WHEN 'reissue' THEN y.item_count ELSE 0 END)), 0)::bigint AS used
FROM holdfast.replay y
WHERE coalesce(y.person, lower(regexp_replace(y.actor, '^token ', ''))) = %(person)s AND y.id <> %(id)s
  AND NOT (coalesce((y.counts ->> 'needs_approval')::boolean, false) AND y.approved_by IS NULL)
  AND CASE y.state
      WHEN 'planned' THEN true
      WHEN 'applying' THEN true
      WHEN 'applied' THEN coalesce(y.finished_at, y.applied_at, y.created_at) > now() - interval '24 hours'
      WHEN 'cancelled' THEN y.cancelled_at > now() - interval '24 hours' AND (
          y.applied_at IS NOT NULL
          OR EXISTS (SELECT FROM holdfast.replay_item i WHERE i.replay_id = y.id AND i.settled_at IS NOT NULL)
      )
  END


-- name: show
-- One replay: its plan and its state.
-- Uses pk_replay.
SELECT id, verb::text AS verb, state::text AS state, filter, item_count, item_limit, reason, actor, created_at, applied_at,
       rate_per_second, counts, plan_sha256, outside_window, approved_by, approved_at, cancelled_by, cancelled_at,
       finished_at, coalesce(person, lower(regexp_replace(actor, '^token ', ''))) AS person
FROM holdfast.replay
WHERE id = %(id)s


-- name: status
-- The progress of a replay by endpoint, and the endpoint's obstacles.
-- Uses pk_replay_item of this replay, pk_endpoint, pk_endpoint_pace.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, p.rate_per_second, r.breaker::text AS breaker,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until,
       count(*) AS items,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL) AS settled,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind = 'release' AND i.detail IS NULL) AS released,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind = 'hasten' AND i.detail IS NULL) AS hastened,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind = 'resend' AND i.outcome IS NOT NULL) AS sent,
       count(*) FILTER (WHERE i.outcome = 'delivered') AS delivered,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.outcome <> 'delivered') AS failed,
       count(*) FILTER (WHERE i.settled_at IS NOT NULL AND i.kind <> 'resend' AND i.detail IS NOT NULL) AS needless,
       count(*) FILTER (WHERE i.token IS NOT NULL) AS in_flight,
       count(*) FILTER (WHERE i.settled_at IS NULL AND i.token IS NULL) AS waiting,
       count(*) FILTER (WHERE i.settled_at IS NULL AND i.token IS NULL AND i.due_at > now()) AS retrying
FROM holdfast.replay_item i
JOIN holdfast.endpoint p ON p.id = i.endpoint_id
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
WHERE i.replay_id = %(id)s
GROUP BY p.id, r.endpoint_id
ORDER BY p.name
