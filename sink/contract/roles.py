"""Database roles. They cannot log in: every process takes on its own right after it connects."""

OWNER = "holdfast_owner"
SINK = "holdfast_sink"
DISPATCHER = "holdfast_dispatcher"
OPERATOR = "holdfast_operator"
READER = "holdfast_reader"
JANITOR = "holdfast_janitor"

STREAM_PREFIX = "holdfast_sink_"
"""Of a role that writes one stream; behind it stands the stream's name."""

SEARCH_PATH = "pg_catalog, pg_temp"
"""Where every session of ours finds names: what stands in another schema is never called."""

ALL = (OWNER, SINK, DISPATCHER, OPERATOR, READER, JANITOR)
