"""The examples of `OutboxSink` are run as they stand: its docstring's, and those of the pages."""

import doctest
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.sink import OutboxSink
from tests.support.pages import blocks_of


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


@pytest.mark.parametrize("page", ["README.md", "docs/spark/sink.md"])
def test_example_of_a_page(
    page: str, decisions: Any, dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    text = blocks_of(page, "python")[0].replace("/checkpoints", str(tmp_path))
    names: dict[str, Any] = {"dsn": dsn, "decisions": decisions}
    exec(compile(text, page, "exec"), names)  # noqa: S102 - it is ours
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
        names["sink"].close()
    assert db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (2,)
