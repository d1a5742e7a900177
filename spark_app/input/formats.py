"""Formats of event files."""

from enum import StrEnum


class Format(StrEnum):
    """How the events of a file are encoded."""

    JSON = "json"
    """One JSON object per line."""

    PARQUET = "parquet"
    """The columns of an event. A file with another type in one of them stops the query."""
