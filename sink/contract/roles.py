"""Database roles. They cannot log in: every process sets its role right after it connects."""

OWNER = "holdfast_owner"
SINK = "holdfast_sink"
DISPATCHER = "holdfast_dispatcher"
OPERATOR = "holdfast_operator"
READER = "holdfast_reader"
JANITOR = "holdfast_janitor"

STREAM_PREFIX = "holdfast_sink_"
"""Of the role that writes one stream; the stream's name follows."""

SEARCH_PATH = "pg_catalog, pg_temp"
"""Of every session: names in other schemas are always qualified."""

ALL = (OWNER, SINK, DISPATCHER, OPERATOR, READER, JANITOR)


def application_of(stream: str) -> str:
    """Return the `application_name` of a sink's sessions, as long as the server keeps it."""
    return f"holdfast sink {stream}"[:63]
