-- Records a plan.
-- Unique by pk_replay.
INSERT INTO holdfast.replay (
    id, verb, filter, item_count, reason, actor, rate_per_second, counts, plan_sha256, outside_window, item_limit,
    person
)
VALUES (
    %(id)s, 'redeliver', %(filter)s, %(item_count)s, %(reason)s, %(actor)s, %(rate)s, %(counts)s, %(sha256)s,
    %(outside_window)s, %(limit)s, %(person)s
)
