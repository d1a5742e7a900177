"""Traces through the sink: what entries are stored with, and what a span tells of a batch."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from opentelemetry import trace as api

from holdfast.sink import BatchInput, Replayed, Written
from tests.support.dispatch.dispatching import Spans, header, tracing
from tests.support.dispatch.sender import decision, table
from tests.support.job.driver import Driver, MakeDriver
from tests.support.world import World

OWN = f"00-{7:032x}-{7:016x}-01"


@pytest.fixture
def spans() -> Iterator[Spans]:
    with tracing() as spans:
        yield spans


def _traced(*rows: dict[str, Any]) -> pa.Table:
    """Rows of which each may have a traceparent of its own."""
    own = pa.array([row.get("traceparent") for row in rows], pa.string())
    return table(*rows).append_column("traceparent", own)


def _stored(db: psycopg.Connection) -> dict[str, str | None]:
    return dict(
        db.execute("""
            SELECT name, traceparent FROM holdfast.entry
            JOIN holdfast.subject ON subject.id = entry.subject_id""").fetchall()
    )


def _digest(db: psycopg.Connection) -> bytes:
    (digest,) = db.execute("SELECT digest FROM holdfast.batch").fetchone() or (b"",)
    return bytes(digest)


def test_entry_without_traceparent_has_that_of_its_batch(world: World, spans: Spans) -> None:
    world.driver().tables(0, _traced(decision("m_1"), decision("m_2", traceparent=OWN)))
    assert _stored(world.db) == {"m_1": header(spans.one), "m_2": OWN}


def test_tracing_needs_an_sdk_but_not_the_column(world: World) -> None:
    with tracing() as spans:
        spark = world.driver()
        spark.batch(0, decision("m_1"))
    spark.batch(1, decision("m_2"))
    assert _stored(world.db) == {"m_1": header(spans.one), "m_2": None}


def test_span_tells_stream_batch_and_counts(driver: MakeDriver, spans: Spans) -> None:
    spark = driver(first_batch=3)
    spark.batch(3, decision("m_1"), decision("m_1"), decision("m_2", type_=""))
    attributes = spans.one.attributes or {}
    assert spans.one.name == "send payouts"
    assert attributes["holdfast.query_id"] == str(spark.query_id)
    assert attributes["holdfast.batch_id"] == 3
    assert attributes["holdfast.outcome"] == "written"
    assert attributes["messaging.batch.message_count"] == 1
    assert attributes["holdfast.batch.rows"] == 3
    assert attributes["holdfast.batch.duplicates"] == 1
    assert attributes["holdfast.batch.quarantined"] == 1


def test_replay_in_another_trace_keeps_the_first_traceparent(world: World, spans: Spans) -> None:
    first = world.driver()
    assert isinstance(first.batch(0, decision("m_1")), Written)
    again = world.driver(query_id=first.query_id).batch(0, decision("m_1"))
    assert isinstance(again, Replayed)
    written, replayed = spans.ended
    assert _stored(world.db) == {"m_1": header(written)}
    assert (replayed.attributes or {})["holdfast.outcome"] == "replayed"


def test_digest_does_not_depend_on_the_trace(
    make_database: Callable[[str | None], str], template_database: str
) -> None:
    digests = []
    for traced in (True, False):
        dsn = make_database(template_database)
        with psycopg.connect(dsn, autocommit=True) as db:
            spark = Driver(dsn)
            if traced:
                with tracing():
                    spark.batch(0, decision("m_1"))
            else:
                spark.batch(0, decision("m_1"))
            spark.sink.close()
            digests.append(_digest(db))
    assert digests[0] == digests[1]


def test_failed_batch_is_an_error_without_its_rows(world: World, spans: Spans) -> None:
    def also(connection: psycopg.Connection, _rows: pa.Table) -> None:
        connection.execute("SELECT 'm_482 owes 8500000'::integer")

    spark = world.driver(also=also, select=BatchInput)
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="8500000"):
        spark.batch(0, decision("m_482"))
    span = spans.one
    assert span.status.status_code is api.StatusCode.ERROR
    assert (span.attributes or {})["db.response.status_code"] == "22P02"
    assert not any(word in span.to_json() for word in ("m_482", "8500000", "host=", "user="))
    assert _stored(world.db) == {}
