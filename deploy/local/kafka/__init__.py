"""Kafka for development and tests: pinned jars, and a broker in a process of its own.

A broker's topics are made and written by confluent-kafka, which is an extra of its own.
"""

from importlib.util import find_spec

from holdfast.sink.contract.exits import CommandError, ExitCode


def has_client() -> bool:
    """Return whether confluent-kafka is installed."""
    return find_spec("confluent_kafka") is not None


def require_client() -> None:
    """Raise `CommandError` unless confluent-kafka is installed."""
    if not has_client():
        raise CommandError(
            "the package confluent-kafka, which writes to a topic, is not installed. Nothing was"
            " started. Install the extra `kafka`: pip install '/path/to/holdfast[kafka]'.",
            ExitCode.USAGE,
            code="package_missing",
        )
