"""(c), (d) and (e): hand-written alternatives, and the limit of one connection."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from holdfast.sink.rows.postgres_text import csv
from tests.benchmarks.common.runs import Missing
from tests.benchmarks.sink.query import play
from tests.benchmarks.sink.rows import DECISIONS_DDL, FILES, FINISHED_DDL, batch_count, read_batch
from tests.benchmarks.sink.stopwatch import Lap, Stopwatch

DRIVER = "org.postgresql:postgresql:42.7.8"
TABLE = "by_hand"
BATCH_SIZE = 1_000
"""Rows of a statement; Spark's default."""
DECISIONS_TABLE = (
    "(id text PRIMARY KEY, subject text, type text, occurred_at timestamptz, body text)"
)


def jdbc(*, key: bool, rewrite: bool) -> Callable[[str, Path], list[Lap]]:
    """`df.write.jdbc`: a connection and a transaction for each of two partitions."""

    def run(dsn: str, folder: Path) -> list[Lap]:
        _create(dsn, _finished(key=key))
        return _append(dsn, folder / "finished", FINISHED_DDL, lambda df: df, rewrite=rewrite)

    return run


def jdbc_decisions(*, rewrite: bool, batch_size: int) -> Callable[[str, Path], list[Lap]]:
    """`df.write.jdbc` of the rows that the sink gets, as texts: JDBC knows no structs."""

    def run(dsn: str, folder: Path) -> list[Lap]:
        _create(dsn, DECISIONS_TABLE)
        rows = folder / "decisions"
        return _append(dsn, rows, DECISIONS_DDL, _as_texts, rewrite=rewrite, batch_size=batch_size)

    return run


def executemany(dsn: str, folder: Path) -> list[Lap]:
    """psycopg in foreachBatch: rows to the driver, one transaction, repeats ignored."""
    _create(dsn, _finished(key=True))
    connection, watch = psycopg.connect(dsn, autocommit=True), Stopwatch()

    def each(df: DataFrame, _batch_id: int) -> None:
        with watch.lap():
            columns = df.toArrow().to_pydict()
            rows = zip(columns["id"], columns["subject"], columns["body"], strict=True)
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(
                    f"INSERT INTO {TABLE} VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", rows
                )

    play(folder / "finished", FINISHED_DDL, each)
    connection.close()
    return watch.laps


def bare_copy(dsn: str, folder: Path) -> list[Lap]:
    """COPY of bytes that are ready, into a table without index or constraint."""
    _create(dsn, _finished(key=False))
    watch = Stopwatch()
    with psycopg.connect(dsn, autocommit=True) as connection:
        for number in range(batch_count(folder / "finished")):
            ready = _as_csv(read_batch(folder / "finished", number))
            with watch.lap(), connection.transaction():
                copy_sql = f"COPY {TABLE} FROM STDIN (FORMAT csv)"
                with connection.cursor().copy(copy_sql) as copy:
                    copy.write(ready)
    return watch.laps


def _append(
    dsn: str,
    folder: Path,
    ddl: str,
    made: Callable[[DataFrame], DataFrame],
    *,
    rewrite: bool,
    batch_size: int = BATCH_SIZE,
) -> list[Lap]:
    url, properties = _jdbc(dsn, rewrite=rewrite)
    properties["batchsize"] = str(batch_size)
    watch = Stopwatch()

    def each(df: DataFrame, _batch_id: int) -> None:
        if (partitions := df.rdd.getNumPartitions()) != FILES:
            raise RuntimeError(f"the batch has {partitions} partitions, not {FILES}")
        with watch.lap():
            made(df).write.jdbc(url, TABLE, mode="append", properties=properties)

    play(folder, ddl, each, DRIVER)
    return watch.laps


def _as_texts(decisions: DataFrame) -> DataFrame:
    key, body = sql.concat_ws(":", "key").alias("id"), sql.to_json("data").alias("body")
    return decisions.select(key, "subject", "type", "occurred_at", body)


def _finished(*, key: bool) -> str:
    id_ = "id text PRIMARY KEY" if key else "id text"
    return f"({id_}, subject text, body text)"


def _create(dsn: str, columns: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(f"CREATE TABLE {TABLE} {columns}".encode())


def _jdbc(dsn: str, *, rewrite: bool) -> tuple[str, dict[str, str]]:
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    host = parts.get("host", "")
    if not host or host.startswith("/"):
        raise Missing("Java's driver needs a DSN with a host; this one has a socket")
    url = f"jdbc:postgresql://{host}:{parts.get('port', '5432')}/{parts['dbname']}"
    properties = {
        "driver": "org.postgresql.Driver",
        "user": parts.get("user", ""),
        "password": parts.get("password", ""),
    }
    if rewrite:
        properties["reWriteBatchedInserts"] = "true"
    return url, properties


def _as_csv(table: pa.Table) -> bytes:
    return b"".join(csv(table))
