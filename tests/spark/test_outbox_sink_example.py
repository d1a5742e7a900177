"""The example of `OutboxSink` is run as it stands."""

import doctest
from pathlib import Path
from typing import Any

from sink import OutboxSink


def test_example_of_the_sink(spark: Any, dsn: str, tmp_path: Path) -> None:
    source = tmp_path / "decisions"
    spark.sql("""
        SELECT
            subject, 'payout_hold.block' AS type, array('example/v1', subject) AS key,
            timestamp '2026-11-02 12:15:00' AS occurred_at,
            named_struct('merchant_id', subject) AS data
        FROM VALUES ('m_1'), ('m_2') AS given (subject)
    """).write.parquet(str(source))
    names = {
        "OutboxSink": OutboxSink,
        "dsn": dsn,
        "checkpoint": str(tmp_path / "checkpoint"),
        "decisions": spark.readStream.schema(spark.read.parquet(str(source)).schema).parquet(
            str(source)
        ),
    }
    assert OutboxSink.__doc__
    test = doctest.DocTestParser().get_doctest(OutboxSink.__doc__, names, "OutboxSink", None, 0)
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append, clear_globs=False)
    test.globs["sink"].close()
    assert test.examples
    assert not said, "".join(said)
