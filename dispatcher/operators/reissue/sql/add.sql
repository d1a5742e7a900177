-- Records a plan of reissues, before any entry is written.
-- Unique by pk_replay.
INSERT INTO holdfast.replay (id, verb, filter, item_count, reason, actor, counts, person)
VALUES (%(id)s, 'reissue', %(filter)s, %(item_count)s, %(reason)s, %(actor)s, %(counts)s, %(person)s)
