"""Rows a second into Postgres: the sink, beside what people write by hand and beside the limit.

Three cases on the same rows and the same server, interleaved, in one run:

    sink         canonicalise, digest, fence, ledger, keys, sequences, suppression, entries: one
                 transaction a batch
    executemany  psycopg's executemany into a table with a primary key, ON CONFLICT DO NOTHING,
                 one transaction a batch: the usual foreachBatch
    copy         COPY into a table without index or constraint: the limit of one connection

Run it with `make bench`; `.holdfast/bench/sink.json` has the figures.
"""

import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.table import Table

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import upgrade
from sink.batch import BatchInput, prepare
from sink.contract.envelope import Envelope
from sink.contract.key import Key
from sink.driver_path import InDriver
from sink.writer import Writer

ROWS = 20_000
SUBJECTS = 5_000
ROUNDS = 5
WINDOW = datetime(2026, 11, 2, 12, 15, tzinfo=UTC)
REPORT = Path(".holdfast/bench/sink.json")

Case = Callable[[int], float]


def rows_of(batch_id: int) -> pa.Table:
    """Return ROWS decisions that no other batch has; the types of a subject alternate."""
    numbers = range(batch_id * ROWS, (batch_id + 1) * ROWS)
    subjects = [f"m_{number % SUBJECTS}" for number in numbers]
    actions = ["block" if number // SUBJECTS % 2 else "release" for number in numbers]
    return pa.table(
        {
            "subject": subjects,
            "type": [f"payout_hold.{action}" for action in actions],
            "key": [["bench/v1", str(number)] for number in numbers],
            "occurred_at": pa.array([WINDOW] * ROWS, pa.timestamp("us", "UTC")),
            "data": [
                {"merchant_id": subject, "exposure_minor": 8_500_000, "currency": "USD"}
                for subject in subjects
            ],
        }
    )


def sink_case(dsn: str) -> Case:
    """Time the whole of what foreachBatch does after `toArrow`."""
    writer = Writer(dsn, "bench")
    writer.begin_run(uuid4(), uuid4())

    def run(batch_id: int) -> float:
        table = rows_of(batch_id)
        start = time.perf_counter()
        written = writer.write(batch_id, InDriver(prepare(BatchInput(table))))
        seconds = time.perf_counter() - start
        if written.counts.rows != ROWS:
            raise RuntimeError(f"{written.counts.rows} rows went in, not {ROWS}")
        return seconds

    return run


def executemany_case(dsn: str) -> Case:
    """Time one executemany of finished rows in one transaction."""
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute("CREATE TABLE by_hand (id text PRIMARY KEY, subject text, body text)")

    def run(batch_id: int) -> float:
        rows = [
            (key.text, subject, body.decode())
            for subject, key, body in _finished(rows_of(batch_id))
        ]
        start = time.perf_counter()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO by_hand VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", rows
            )
        return time.perf_counter() - start

    return run


def copy_case(dsn: str) -> Case:
    """Time one COPY of finished rows into a table without any index."""
    connection = psycopg.connect(dsn, autocommit=True)
    connection.execute("CREATE TABLE bare (id text, subject text, body text)")

    def run(batch_id: int) -> float:
        text = "".join(
            f"{key.text}\t{subject}\t{body.decode()}\n"
            for subject, key, body in _finished(rows_of(batch_id))
        )
        start = time.perf_counter()
        with connection.transaction(), connection.cursor().copy("COPY bare FROM STDIN") as copy:
            copy.write(text)
        return time.perf_counter() - start

    return run


def main() -> None:
    """Run the cases, print the table and write the report."""
    with _server() as dsn:
        upgrade(dsn)
        cases = {
            "sink": sink_case(dsn),
            "executemany": executemany_case(dsn),
            "copy": copy_case(dsn),
        }
        rates: dict[str, list[float]] = {name: [] for name in cases}
        for round_number in range(ROUNDS + 1):
            for name, case in cases.items():
                seconds = case(round_number)
                if round_number:  # the first round warms caches and partitions
                    rates[name].append(ROWS / seconds)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratios = {
        "vs_executemany": medians["sink"] / medians["executemany"],
        "vs_bare_copy": medians["sink"] / medians["copy"],
    }
    _print(rates, medians, ratios)
    _write(rates, medians, ratios)


def _finished(table: pa.Table) -> Iterator[tuple[str, Key, bytes]]:
    for row in table.to_pylist():
        key = Key.of(row["key"])
        envelope = Envelope.of(row["type"], row["occurred_at"], key, row["data"])
        yield row["subject"], key, envelope.body(1)


@contextmanager
def _server() -> Iterator[str]:
    """Yield the DSN of a fresh database, on HOLDFAST_DSN's server or an embedded one."""
    with tempfile.TemporaryDirectory() as directory:
        given = os.environ.get("HOLDFAST_DSN")
        server = None if given else EmbeddedPostgres(Path(directory) / "postgres")
        if server is not None:
            server.start()
        try:
            dsn = given or (server.dsn if server else "")
            name = f"holdfast_bench_{uuid4().hex[:8]}"
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
                yield make_conninfo(dsn, dbname=name)
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        finally:
            if server is not None:
                server.stop()


def _print(
    rates: dict[str, list[float]], medians: dict[str, float], ratios: dict[str, float]
) -> None:
    table = Table(title=f"{ROWS:,} rows a batch, {SUBJECTS:,} subjects, {ROUNDS} rounds")
    for column in ("case", "median rows/s", "min", "max"):
        table.add_column(column, justify="right" if column != "case" else "left")
    for name, values in rates.items():
        table.add_row(name, *(f"{v:,.0f}" for v in (medians[name], min(values), max(values))))
    console = Console()
    console.print(table)
    for name, ratio in ratios.items():
        console.print(f"{name}: {ratio:.2f}")
    console.print(f"report: {REPORT}")


def _write(
    rates: dict[str, list[float]], medians: dict[str, float], ratios: dict[str, float]
) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],  # noqa: S607 - whichever git the reader has
        capture_output=True,
        text=True,
        check=False,
    )
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    cases = {
        name: {"median": medians[name], "min": min(values), "max": max(values), "unit": "rows/s"}
        for name, values in rates.items()
    }
    report = {
        "cases": cases,
        "ratios": ratios,
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "versions": {"psycopg": psycopg.__version__, "pyarrow": pa.__version__},
        "commit": commit.stdout.strip(),
    }
    REPORT.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
