"""What event files hold."""

from enum import StrEnum


class Format(StrEnum):
    """How the events of a file are written down."""

    JSON = "json"
    """One JSON object a line."""

    PARQUET = "parquet"
    """The columns of an event. A file with another type in one of them stops the query."""
