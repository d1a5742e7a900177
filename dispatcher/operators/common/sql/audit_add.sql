-- Records an operator's action, in the transaction of the action.
-- Needs no index.
INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)
VALUES (%(actor)s, %(action)s, %(target)s, %(reason)s, %(detail)s)
