"""The initial state of a new checkpoint of a stream with a published past.

Read from Postgres until the checkpoint has written a batch, and stored in it from then on, so that
its first batch sees the same state in every attempt. The state is final: a query that is not
adopted is refused before any batch, and after the adoption no other query can write.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
from pyspark.sql import GroupedData, SparkSession

from holdfast.sink.contract import statements
from holdfast.sink.foreach_batch import OutboxSink
from holdfast.sink.transaction.write_batch import unadopted
from holdfast.spark_app.exposure.schema import STATE_MERCHANTS
from holdfast.spark_app.exposure.settings import Settings
from holdfast.spark_app.exposure.state import GroupState, resumed
from holdfast.spark_app.operator import initial_state
from holdfast.spark_app.operator.groups import key_group
from holdfast.spark_app.operator.output import BLOCK, TYPE_PREFIX

if TYPE_CHECKING:
    import psycopg

FILE: Final = "holdfast-initial.json"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Initial:
    """The published state; times in microseconds since 1970."""

    settled_until_us: int
    """The newest published window end: every window up to it was emitted."""
    held: Mapping[str, int]
    """The held merchants, each with the end of its newest published window."""

    def groups(
        self, spark: SparkSession, numbers: tuple[int, ...], settings: Settings
    ) -> GroupedData:
        """Return the argument of `transformWithState`: `initial_state.COLUMNS`, by key group.

        Raises StateError for a hold whose window is not known.
        """
        members: dict[int, list[str]] = {number: [] for number in numbers}
        for merchant in sorted(self.held):
            members[key_group(merchant, numbers)].append(merchant)
        rows = [
            initial_state.rows(number, self._state(merchants, settings), None, settings)
            for number, merchants in members.items()
        ]
        return spark.createDataFrame(pa.concat_tables(rows)).groupBy("key_group")

    def _state(self, merchants: list[str], settings: Settings) -> GroupState:
        held = [
            {"merchant_id": merchant, "held": True, "latest_end": self.held[merchant]}
            for merchant in merchants
        ]
        table = pa.Table.from_pylist(held, schema=STATE_MERCHANTS)
        return resumed(self.settled_until_us, table, settings)


class Past(NamedTuple):
    """The recorded past of a stream, for one query of it."""

    recorded: bool
    """Whether the query has written a batch: then its initial state is fixed."""
    initial: Initial | None
    """None where nothing was published."""


def read_past(sink: OutboxSink, stream: str, query_id: UUID) -> Past:
    """Read the past of a stream, for the query of a checkpoint.

    Raises UnadoptedCheckpoint for another query than the one that the stream has adopted, and what
    `OutboxSink.read` raises.
    """
    return sink.read(partial(_read, stream, query_id, sink.checkpoint))


def newest_batch(sink: OutboxSink, stream: str, query_id: UUID) -> int | None:
    """Return the newest batch of a query in the ledger; raises what `OutboxSink.read` does."""

    def read(connection: "psycopg.Connection") -> int | None:
        values = {"stream": stream, "query_id": query_id}
        row = connection.execute(_statement("read_newest_batch"), values).fetchone()
        return None if row is None else row[0]

    return sink.read(read)


def other_stream(sink: OutboxSink, stream: str, query_id: UUID) -> tuple[str, int] | None:
    """Return another stream that has batches of a query, and the newest of them, or None.

    Raises what `OutboxSink.read` does.
    """

    def read(connection: "psycopg.Connection") -> tuple[str, int] | None:
        values = {"stream": stream, "query_id": query_id}
        return connection.execute(_statement("read_other_stream"), values).fetchone()

    return sink.read(read)


def newer_query(sink: OutboxSink, stream: str, query_id: UUID) -> tuple[UUID, int] | None:
    """Return the query that has written batches after the newest one of a query, and its newest.

    None where there is no other, or the query has written none. Raises what `OutboxSink.read` does.
    """

    def read(connection: "psycopg.Connection") -> tuple[UUID, int] | None:
        values = {"stream": stream, "query_id": query_id}
        return connection.execute(_statement("read_newer_query"), values).fetchone()

    return sink.read(read)


def published_until(sink: OutboxSink, stream: str) -> int:
    """Return the newest published window end of a stream in microseconds, 0 before the first one.

    Raises what `OutboxSink.read` does.
    """

    def read(connection: "psycopg.Connection") -> int:
        row = connection.execute(_statement("read_frontier"), {"stream": stream}).fetchone()
        return 0 if row is None else row[0]

    return sink.read(read)


def _read(
    stream: str, query_id: UUID, checkpoint: str | None, connection: "psycopg.Connection"
) -> Past:
    values: dict[str, Any] = {"stream": stream, "query_id": query_id}
    row = connection.execute(_statement("read_past"), values).fetchone()
    adopted, recorded, frontier_us = row or (None, False, None)
    if adopted not in (None, query_id):
        # Not left to the run's first statement: after an adoption in between, this read would miss
        # batches of the other query.
        raise unadopted(stream, query_id, adopted, checkpoint)
    if frontier_us is None:
        return Past(recorded, initial=None)
    holds = {"stream": stream, "block": TYPE_PREFIX + BLOCK}
    held: dict[str, int] = dict(connection.execute(_statement("read_holds"), holds).fetchall())
    return Past(recorded, Initial(frontier_us, held))


def to_json(initial: Initial | None) -> str:
    """Return the text of `FILE`."""
    return (
        json.dumps(
            {
                "version": VERSION,
                "settled_until_us": initial.settled_until_us if initial else None,
                "held": dict(sorted(initial.held.items())) if initial else {},
            },
            indent=2,
        )
        + "\n"
    )


def from_json(kept: Mapping[str, Any]) -> Initial | None:
    """Return what `to_json` wrote; else raises KeyError, TypeError or ValueError."""
    settled, held = kept["settled_until_us"], dict(kept["held"])
    return None if settled is None else Initial(settled, held)


def _statement(name: str) -> bytes:
    return statements.statement("holdfast.spark_app.checkpoint", name)
