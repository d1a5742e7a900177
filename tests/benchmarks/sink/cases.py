"""The cases: each writes the batches of a folder, and its tables are checked afterwards.

`run` is called in a process of its own. A case that lost or invented a row raises, and so gets no
figure.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from holdfast.deploy.local.java import spark_environment
from holdfast.sink import OutboxSink
from holdfast.sink.rows.batch import BatchInput, prepare
from holdfast.sink.rows.digest import digest
from holdfast.sink.transaction.driver_path import InDriver
from holdfast.sink.transaction.writer import Writer
from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.trees import Missing
from tests.benchmarks.sink.rows import DECISIONS_DDL, FILES, FINISHED_DDL, batch_count, read_batch

try:
    from holdfast.sink.rows.copy_formats import csv
except ImportError:  # of an older commit, which these cases measure as well
    from holdfast.sink.rows.postgres_text import csv

STREAM = "bench"
DRIVER = "org.postgresql:postgresql:42.7.8"
TABLE = "by_hand"
KEYED, UNKEYED = (f"({key}, subject text, body text)" for key in ("id text PRIMARY KEY", "id text"))
DECISIONS_TABLE = (
    "(id text PRIMARY KEY, subject text, type text, occurred_at timestamptz, body text)"
)
COUNTS = """
SELECT
    (SELECT count(*) FROM holdfast.entry),
    (SELECT count(*) FROM holdfast.entry_key),
    (SELECT count(*) FROM holdfast.entry JOIN holdfast.entry_key USING (key, batch_no)),
    (SELECT sum(last_sequence) FROM holdfast.subject),
    (SELECT count(*) FROM (
        SELECT subject_id FROM holdfast.entry GROUP BY subject_id
        HAVING min(sequence) <> 1 OR max(sequence) <> count(*)
            OR count(DISTINCT sequence) <> count(*)
    ) AS gap)
"""


@dataclass
class Stopwatch:
    """Takes the seconds and the processor seconds of each batch, of client and server together."""

    server_pid: int | None
    laps: list[tuple[float, float]] = field(default_factory=list)

    @contextmanager
    def lap(self) -> Iterator[None]:
        """Time a block."""
        cpu, began = self._cpu(), time.perf_counter()
        yield
        seconds = time.perf_counter() - began
        self.laps.append((seconds, self._cpu() - cpu))

    def _cpu(self) -> float:
        return processor_seconds() + (processor_seconds(self.server_pid) if self.server_pid else 0)


def in_query(path: Literal["driver", "staged"], dsn: str, folder: Path, watch: Stopwatch) -> None:
    """The sink in foreachBatch: from the rows as a DataFrame to COMMIT."""
    sink = OutboxSink(dsn, stream=STREAM, path=path)

    def each(df: DataFrame, batch_id: int) -> None:
        with watch.lap():
            sink(df, batch_id)

    play(folder / "decisions", DECISIONS_DDL, each)
    sink.close()


def library(dsn: str, folder: Path, watch: Stopwatch) -> None:
    """The driver path without Spark: from an Arrow table to COMMIT."""
    writer = Writer(dsn, STREAM)
    writer.begin_run(uuid4(), uuid4())
    for number in range(batch_count(folder / "decisions")):
        table = read_batch(folder / "decisions", number)
        with watch.lap():
            writer.write(number, InDriver(prepare(BatchInput(table))))
    writer.close()


def jdbc(
    columns: str, dsn: str, folder: Path, watch: Stopwatch, *, rewrite: bool, batch_size: int = 1000
) -> None:
    """`df.write.jdbc`: a connection and a transaction for each of two partitions.

    Of finished texts, or of the rows that the sink gets, made texts: JDBC knows no structs.
    """
    _create(dsn, columns)
    url, properties = _jdbc(dsn)
    properties |= {"batchsize": str(batch_size)} | (
        {"reWriteBatchedInserts": "true"} if rewrite else {}
    )
    has_decisions = columns is DECISIONS_TABLE

    def each(df: DataFrame, _batch_id: int) -> None:
        if (partitions := df.rdd.getNumPartitions()) != FILES:
            raise RuntimeError(f"the batch has {partitions} partitions, not {FILES}")
        with watch.lap():
            rows = _as_texts(df) if has_decisions else df
            rows.write.jdbc(url, TABLE, mode="append", properties=properties)

    kind, ddl = ("decisions", DECISIONS_DDL) if has_decisions else ("finished", FINISHED_DDL)
    play(folder / kind, ddl, each, DRIVER)


def executemany(dsn: str, folder: Path, watch: Stopwatch) -> None:
    """psycopg in foreachBatch: rows to the driver, one transaction, repeats ignored."""
    _create(dsn, KEYED)
    insert = f"INSERT INTO {TABLE} VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
    with psycopg.connect(dsn, autocommit=True) as connection:

        def each(df: DataFrame, _batch_id: int) -> None:
            with watch.lap():
                columns = df.toArrow().to_pydict()
                rows = zip(columns["id"], columns["subject"], columns["body"], strict=True)
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.executemany(insert, rows)

        play(folder / "finished", FINISHED_DDL, each)


def bare_copy(dsn: str, folder: Path, watch: Stopwatch) -> None:
    """COPY of bytes that are ready, into a table without index or constraint."""
    _create(dsn, UNKEYED)
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(batch_count(folder / "finished")):
            ready = b"".join(csv(read_batch(folder / "finished", number)))
            copy_sql, cursor = f"COPY {TABLE} FROM STDIN (FORMAT csv)", connection.cursor()
            with watch.lap(), connection.transaction(), cursor.copy(copy_sql) as copy:
                copy.write(ready)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to write the batches."""

    label: str
    write: Callable[[str, Path, Stopwatch], None]
    is_ours: bool = False
    many: bool = False
    """Whether every row has a subject of its own."""


_OURS: Final = {
    "sink": Case("this sink, driver path", partial(in_query, "driver"), is_ours=True),
    "library": Case("its library part, no Spark", library, is_ours=True),
    "staged": Case("this sink, staged path", partial(in_query, "staged"), is_ours=True),
}
CASES: Final = {
    **_OURS,
    **{
        f"{name}_many": Case(f"{case.label}, many subjects", case.write, is_ours=True, many=True)
        for name, case in _OURS.items()
    },
    **{
        name: Case(label, partial(jdbc, columns, rewrite=rewrite, batch_size=size))
        for name, columns, rewrite, size, label in (
            ("jdbc", KEYED, False, 1_000, "df.write.jdbc"),
            ("jdbc_decisions", DECISIONS_TABLE, False, 1_000, "jdbc, same rows"),
            ("jdbc_decisions_10k", DECISIONS_TABLE, False, 10_000, "same rows, 10,000 a statement"),
            ("jdbc_decisions_rewrite", DECISIONS_TABLE, True, 1_000, "same rows, rewritten"),
            ("jdbc_decisions_rewrite_10k", DECISIONS_TABLE, True, 10_000, "rewritten, 10,000"),
            ("jdbc_no_key", UNKEYED, False, 1_000, "df.write.jdbc, no key"),
            ("jdbc_rewrite", KEYED, True, 1_000, "jdbc, rewritten"),
            ("jdbc_rewrite_no_key", UNKEYED, True, 1_000, "jdbc, rewritten, no key"),
        )
    },
    "executemany": Case("executemany", executemany),
    "bare_copy": Case("bare COPY, the limit", bare_copy),
}


def run(name: str, dsn: str, folder: str, server_pid: int | None) -> list[tuple[float, float]]:
    """Run a case over the batches of a folder and check its tables; returns the laps."""
    case, watch = CASES[name], Stopwatch(server_pid)
    case.write(dsn, Path(folder), watch)
    (check_outbox if case.is_ours else _check_by_hand)(dsn, Path(folder))
    return watch.laps


def play(
    path: Path, ddl: str, each: Callable[[DataFrame, int], None], package: str | None = None
) -> None:
    """Run a streaming query on two cores over a folder of batches, each passed to a function.

    Raises `Missing` when `package` cannot be had.
    """
    os.environ.update(spark_environment())
    settings: dict[str, Any] = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.session.timeZone": "UTC",
    }
    if package:
        settings["spark.jars.packages"] = package
    try:
        spark = SparkSession.builder.appName("holdfast bench").config(map=settings).getOrCreate()
    except PySparkRuntimeError as error:
        if package is None:
            raise
        raise Missing(f"Spark did not start with {package}: {error}") from error
    # Beside the batches: they go away with the whole run, also if this process is killed.
    with tempfile.TemporaryDirectory(prefix="checkpoint-", dir=path.parent) as checkpoint:
        query = (
            spark.readStream.schema(ddl)
            .option("maxFilesPerTrigger", FILES)
            .parquet(str(path))
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


def check_outbox(dsn: str, folder: Path) -> None:
    """Compare ledger, digests, keys and sequences with the batches; raises RuntimeError."""
    tables = [read_batch(folder / "decisions", n) for n in range(batch_count(folder / "decisions"))]
    rows = sum(table.num_rows for table in tables)
    with psycopg.connect(dsn) as connection:
        ledger = connection.execute(
            "SELECT batch_id, row_count, entry_count, digest FROM holdfast.batch"
            " WHERE stream = %s ORDER BY batch_id",
            [STREAM],
        ).fetchall()
        counts = connection.execute(COUNTS).fetchone()
    expected = [
        (number, table.num_rows, table.num_rows, digest({"entries": table}))
        for number, table in enumerate(tables)
    ]
    if ledger != expected:
        raise RuntimeError(f"the ledger has {ledger}, expected {expected}")
    if counts != (rows, rows, rows, rows, 0):
        raise RuntimeError(
            f"{rows} rows went in, but entries, keys, entries with their key, sequences and"
            f" subjects with a gap are {counts}"
        )


def _check_by_hand(dsn: str, folder: Path) -> None:
    count = batch_count(folder / "finished")
    rows = sum(read_batch(folder / "finished", number).num_rows for number in range(count))
    query = f"SELECT count(*), count(DISTINCT id) FROM {TABLE}"
    with psycopg.connect(dsn) as connection:
        counts = connection.execute(query.encode()).fetchone()
    if counts != (rows, rows):
        raise RuntimeError(f"{rows} rows went in, but rows and different ids in it are {counts}")


def _as_texts(decisions: DataFrame) -> DataFrame:
    key, body = sql.concat_ws(":", "key").alias("id"), sql.to_json("data").alias("body")
    return decisions.select(key, "subject", "type", "occurred_at", body)


def _create(dsn: str, columns: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(f"CREATE TABLE {TABLE} {columns}".encode())


def _jdbc(dsn: str) -> tuple[str, dict[str, str]]:
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    host = parts.get("host", "")
    if not host or host.startswith("/"):
        raise Missing("Java's driver needs a DSN with a host; this one has a socket")
    properties = {name: parts.get(name, "") for name in ("user", "password")}
    url = f"jdbc:postgresql://{host}:{parts.get('port', '5432')}/{parts['dbname']}"
    return url, {"driver": "org.postgresql.Driver", **properties}
