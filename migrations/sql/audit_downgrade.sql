-- Records a downgrade, in its transaction. Every expand revision has this table below it.
-- Needs no index.
INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)
VALUES (%(actor)s, 'db.downgrade', %(target)s, %(reason)s, %(detail)s::jsonb)
