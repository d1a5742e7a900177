"""Database roles. They cannot log in: every process takes on its own right after it connects."""

OWNER = "holdfast_owner"
SINK = "holdfast_sink"
DISPATCHER = "holdfast_dispatcher"
OPERATOR = "holdfast_operator"
READER = "holdfast_reader"
JANITOR = "holdfast_janitor"

ALL = (OWNER, SINK, DISPATCHER, OPERATOR, READER, JANITOR)
