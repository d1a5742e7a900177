"""The examples of `OutboxSink` are run as they stand: its docstring's, and those of the pages."""

import doctest
import os
import signal
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
from pyspark.sql import functions

from holdfast.sink import OutboxSink
from tests.support.documents.pages import blocks_of
from tests.support.waiting import eventually

SINK = "docs/spark/sink.md"
DEPLOYING = "docs/spark/deploying.md"


@pytest.fixture
def decisions(spark: Any, tmp_path: Path) -> Any:
    """Two decisions as a stream."""
    source = str(tmp_path / "decisions")
    spark.sql("""
        SELECT
            subject, 'payout_hold.block' AS type, array('example/v1', subject) AS key,
            timestamp '2026-11-02 12:15:00' AS occurred_at,
            named_struct('merchant_id', subject) AS data
        FROM VALUES ('m_1'), ('m_2') AS given (subject)
    """).write.parquet(source)
    return spark.readStream.schema(spark.read.parquet(source).schema).parquet(source)


def test_example_of_the_sink(decisions: Any, dsn: str, tmp_path: Path) -> None:
    names = {
        "OutboxSink": OutboxSink,
        "dsn": dsn,
        "checkpoint": str(tmp_path / "checkpoint"),
        "decisions": decisions,
    }
    assert OutboxSink.__doc__
    test = doctest.DocTestParser().get_doctest(OutboxSink.__doc__, names, "OutboxSink", None, 0)
    texts: list[str] = []
    doctest.DocTestRunner().run(test, out=texts.append, clear_globs=False)
    test.globs["sink"].close()
    assert test.examples
    assert not texts, "".join(texts)


def _run(page: str, decisions: Any, dsn: str, folder: Path) -> None:
    text = blocks_of(page, "python")[0].replace("/checkpoints", str(folder))
    names: dict[str, Any] = {"dsn": dsn, "decisions": decisions}
    exec(compile(text, page, "exec"), names)  # noqa: S102 - it is ours
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
        names["sink"].close()


@pytest.mark.parametrize("page", ["README.md", SINK])
def test_example_of_a_page(
    page: str, decisions: Any, dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    _run(page, decisions, dsn, tmp_path)
    assert db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (2,)


def test_column_of_the_page_rejects_rows_by_a_rule(
    decisions: Any, dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    with_orders = decisions.withColumn(
        "order_id", functions.when(functions.col("subject") == "m_1", "o_1")
    )
    names: dict[str, Any] = {"F": functions, "decisions": with_orders}
    exec(blocks_of(SINK, "python")[1], names)  # noqa: S102 - it is ours
    _run(SINK, names["decisions"].drop("order_id"), dsn, tmp_path)
    assert db.execute(
        "SELECT name FROM holdfast.entry JOIN holdfast.subject ON id = subject_id"
    ).fetchall() == [("m_1",)]
    refused = db.execute("SELECT rule, row::jsonb ->> 'subject' FROM holdfast.quarantine")
    assert refused.fetchall() == [("no_such_order", "m_2")]


def test_sigterm_stops_the_query_of_the_page(decisions: Any, dsn: str, tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    sink = OutboxSink(dsn, stream="payouts", checkpoint=checkpoint)
    writer = decisions.writeStream.option("checkpointLocation", checkpoint)
    names = {"Event": Event, "signal": signal, "sink": sink, "writer": writer}
    [text] = blocks_of(DEPLOYING, "python")

    def ask() -> None:
        beside = OutboxSink(dsn, stream="payouts")
        eventually(lambda: beside.outcome() is not None)
        beside.close()
        os.kill(os.getpid(), signal.SIGTERM)

    asking, before = Thread(target=ask), signal.getsignal(signal.SIGTERM)
    asking.start()
    try:
        exec(compile(text, DEPLOYING, "exec"), names)  # noqa: S102 - it is ours
    finally:
        asking.join()
        signal.signal(signal.SIGTERM, before)
        sink.close()
    query: Any = names["query"]
    assert (query.isActive, query.exception()) == (False, None)
    assert (tmp_path / "checkpoint" / "commits" / "0").exists()
