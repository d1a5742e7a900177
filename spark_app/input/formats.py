"""Formats of event files, and of the values of records."""

from enum import StrEnum


class Format(StrEnum):
    """How the events of a file are encoded."""

    JSON = "json"
    """One JSON object per line."""

    PARQUET = "parquet"
    """The columns of an event. A file with another type in one of them stops the query."""


class ValueFormat(StrEnum):
    """How the value of a Kafka record encodes its event."""

    JSON = "json"
    """One JSON object."""

    AVRO = "avro"
    """A record of Avro: bare, or with the id of its schema in a registry."""


class KeyRule(StrEnum):
    """What the key of a Kafka record must be."""

    IGNORED = "ignored"

    MERCHANT_ID = "merchant-id"
    """The merchant id of its event, in UTF-8. Another record is refused."""
