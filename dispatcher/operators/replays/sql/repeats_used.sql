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
