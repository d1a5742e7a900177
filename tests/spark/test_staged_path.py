"""The staged path under Spark itself: one action, whose tasks put the rows into Postgres."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psutil
import psycopg
import pyarrow as pa
import pytest

from holdfast.sink import BatchTooLarge, OutboxSink, Replayed, SchemaMismatch, Written
from holdfast.sink.session import Identity, collected
from holdfast.sink.transaction.login import Login
from holdfast.sink.transaction.staging import arrow_schema, run_tasks
from tests.support.dispatch.sender import SCHEMA, alternating, decision
from tests.support.job.decisions import BAD_ROWS
from tests.support.job.job_stream import contents
from tests.support.processes import matching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_SECONDS = 0.02


@contextmanager
def peak_of(read: Callable[[], int]) -> Iterator[Callable[[], int]]:
    """Sample `read()` while the block runs; the function it yields says how far it rose."""
    before = highest = read()
    done = Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(EVERY_SECONDS):
            highest = max(highest, read())

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield lambda: highest - before
    finally:
        done.set()
        watcher.join()


QUERY_ID, RUN_ID = uuid4(), uuid4()
SCHEMA_WITH_TIMES = SCHEMA.set(
    SCHEMA.get_field_index("data"),
    pa.field(
        "data",
        pa.struct(
            [
                *SCHEMA.field("data").type,
                pa.field("seen", pa.list_(pa.struct({"at": pa.timestamp("us", "UTC")}))),
            ]
        ),
    ),
)

GOOD = [row for n in range(30) for row in alternating(f"m_{n:02}", range(n % 5))]
BAD = [
    decision(f"bad_{n}") | bad
    for n, (bad, _) in enumerate(BAD_ROWS.values())
    if "priority" not in bad
]
ROWS = [
    *GOOD,
    *BAD,
    *GOOD[:7],
    *(decision("m_x", minor=n) for n in (3, 1, 2, 1)),
    decision("m_t", data={"seen": [{"at": decision()["occurred_at"]}, None]}),
]

Sinks = dict[bool, OutboxSink]


@pytest.fixture
def sinks(make_database: Callable[[str | None], str], template_database: str) -> Iterator[Sinks]:
    """A sink of each path, on a database of its own."""
    made = {
        staged: OutboxSink(make_database(template_database), stream="payouts")
        for staged in (False, True)
    }
    yield made
    for each in made.values():
        each.close()


def _frame(spark: "SparkSession", rows: list[dict[str, Any]], partitions: int) -> "DataFrame":
    table = pa.Table.from_pylist(rows, SCHEMA_WITH_TIMES)
    return spark.createDataFrame(table).repartition(partitions)


def _write(sink: OutboxSink, df: "DataFrame", batch_id: int, *, staged: bool) -> Any:
    identity = Identity(QUERY_ID, RUN_ID, batch_id)
    schema = arrow_schema(df)
    if not staged:
        return sink.apply(collected(df, schema), identity)
    return sink.apply_staged(schema, lambda stage: run_tasks(df, stage), identity)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_both_paths_leave_the_same_tables(
    spark: "SparkSession", sinks: Sinks, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setattr("holdfast.sink.transaction.staging.CHUNK_ROWS", 10)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    batches = [_frame(spark, ROWS, 3), _frame(spark, [], 2)]
    left = {}
    try:
        for staged, sink in sinks.items():
            for number, df in enumerate(batches):
                assert isinstance(_write(sink, df, number, staged=staged), Written)
                assert isinstance(_write(sink, df, number, staged=staged), Replayed)
            with psycopg.connect(sink._dsn, autocommit=True) as db:
                left[staged] = contents(db)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert left[True] == left[False]
    assert len(left[True]["quarantine"]) == len(BAD) + 2


@pytest.mark.rest
def test_frame_without_partitions_is_an_empty_batch(spark: "SparkSession", sinks: Sinks) -> None:
    from pyspark.sql.pandas.types import from_arrow_schema

    nothing = spark.createDataFrame(
        spark.sparkContext.emptyRDD(), from_arrow_schema(SCHEMA_WITH_TIMES)
    )
    for staged, sink in sinks.items():
        assert _write(sink, nothing, 0, staged=staged).counts.rows == 0


def test_columns_are_checked_before_any_task_runs(spark: "SparkSession", sinks: Sinks) -> None:
    from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

    wrong = _frame(spark, GOOD, 1).withColumn("Extra", F.raise_error(F.lit("a task ran")))
    with pytest.raises(SchemaMismatch, match="'Extra' is not known here"):
        _write(sinks[True], wrong, 0, staged=True)


def test_tasks_never_show_the_dsn(spark: "SparkSession", sinks: Sinks) -> None:
    from holdfast.sink.transaction.staging import Stage, StageRows

    df = _frame(spark, GOOD, 1)
    stage = Stage(Login("postgresql://app:secret@db/x"), "payouts", sinks[True]._stage.timeouts)
    planned = df.mapInArrow(StageRows(stage), "attempt long")
    plan = planned._jdf.queryExecution().toString()
    assert "StageRows" in plan
    assert "secret" not in plan


@pytest.mark.rest
def test_hundred_megabytes_stay_out_of_the_driver(spark: "SparkSession", sinks: Sinks) -> None:
    from pyspark.sql import functions as F  # noqa: N812 (its name everywhere)

    def rows_of(count: int) -> "DataFrame":
        number = F.col("id").cast("string")
        return spark.range(0, count, 1, 8).select(
            number.alias("subject"),
            F.lit("payout_hold.block").alias("type"),
            F.array(F.lit("large"), number).alias("key"),
            F.timestamp_seconds(F.lit(1_793_620_000)).alias("occurred_at"),
            F.struct(F.repeat(F.lit("x"), 1000).alias("filler")).alias("data"),
        )

    sink = sinks[True]
    _write(sink, rows_of(1000), 0, staged=True)  # what any batch needs
    python = psutil.Process()
    (jvm,) = matching(
        python.children(recursive=True),
        lambda each: "org.apache.spark.deploy.SparkSubmit" in each.cmdline(),
    )

    with peak_of(lambda: python.memory_info().rss + jvm.memory_info().rss) as growth:
        written = _write(sink, rows_of(100_000), 1, staged=True)
    assert written.counts.rows == 100_000
    assert sink._path._last_bytes > 100_000_000
    assert growth() < 512 << 20


def test_batch_too_large_for_the_driver_names_the_staged_path(spark: "SparkSession") -> None:
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.driver.maxResultSize", "1k")
    df = _frame(spark, GOOD, 2)
    try:
        with pytest.raises(BatchTooLarge, match="path='staged'"):
            collected(df, arrow_schema(df))
    finally:
        conf.remove("spark.driver.maxResultSize")
