"""The files that `sink_job` reads, how it is run, and what the sink makes of them without Spark."""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa

from holdfast.deploy.local.java import spark_environment
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.dispatch.sender import BLOCK, NOON, alternating, decision
from tests.support.job.driver import Driver
from tests.support.job.job_stream import contents

PROGRAM = Path(__file__).with_name("sink_job.py")
SECONDS = 240
"""The longest that a query may show no progress: a busy machine only makes it slower."""

AT = pa.timestamp("us", "UTC")
DATA = pa.struct(
    {
        "merchant_id": pa.string(),
        "exposure_minor": pa.int64(),
        "tags": pa.list_(pa.string()),
        "seen": pa.list_(pa.struct({"at": AT, "by": pa.string()})),
        "is_new": pa.bool_(),
        "small": pa.int16(),
    }
)
SCHEMA = pa.schema(
    {
        "subject": pa.string(),
        "type": pa.string(),
        "key": pa.list_(pa.string()),
        "occurred_at": AT,
        "data": DATA,
    }
)


def rows(number: int) -> list[dict[str, Any]]:
    """The rows of a batch: fresh ones, and what the sink sets aside, of each kind."""
    merchants = [f"m_{each}" for each in range(8)]
    fresh = [row for each in merchants for row in alternating(each, [number])]
    for place, row in enumerate(fresh):
        row["data"] |= {
            "tags": [None, [], ["é\n", None, "\U0001f40e"], ["a"]][place % 4],
            "seen": [{"at": NOON - timedelta(microseconds=place), "by": None}, None][: place % 3],
            "is_new": [True, False, None][place % 3],
            "small": place - 4,
        }
    if not number:
        return [*fresh, decision("", 0)]
    known = alternating("m_0", [number - 1])
    known[0]["data"] = {"merchant_id": "m_0", "exposure_minor": number}
    repeated = decision("m_1", number + 100, fresh[1]["type"])
    overtaken = decision("m_2", number - 50, BLOCK, key=["late", str(number)])
    return [*fresh, *known, repeated, overtaken, decision("m_3", 1, key=[])]


def write_events(folder: Path, number: int, lines: list[dict[str, Any]]) -> None:
    """Write the rows of a batch; the source takes files in the order of their times."""
    path = folder / "events" / f"{number:03}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps(row, default=lambda at: at.isoformat()) for row in lines))
    os.utime(path, (1_793_620_000 + number,) * 2)


def run_job(
    python: str, folder: Path, dsn: str, path: str, failpoints: str, *settings: str
) -> tuple[int, str]:
    """Run the query with settings of Spark until it ends or is killed; return how, and its log.

    Raises `TimeoutExpired` where neither log nor checkpoint change for `SECONDS`.
    """
    log = folder / "stderr.txt"
    with log.open("wb") as stderr:
        started = subprocess.Popen(
            [python, str(PROGRAM), dsn, str(folder), path, *settings],
            cwd=folder,
            env={
                **os.environ,
                **spark_environment(),
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": python,
                ENVIRONMENT: failpoints,
            },
            stderr=stderr,
            start_new_session=True,
        )
    try:
        return wait(started, log, folder / "checkpoint"), log.read_text(errors="replace")
    finally:
        if started.poll() is None:
            os.killpg(started.pid, SIGKILL)
            started.wait()


def wait(started: "subprocess.Popen[bytes]", *progress: Path) -> int:
    """Return how a process ends. Raises `TimeoutExpired` where no file changes for `SECONDS`."""
    while True:
        before = _newest(progress)
        try:
            return started.wait(SECONDS)
        except subprocess.TimeoutExpired:
            if _newest(progress) == before:
                raise


def _newest(paths: Sequence[Path]) -> float:
    newest = 0.0
    for file in (file for path in paths for file in (path, *path.rglob("*"))):
        with suppress(FileNotFoundError):  # Spark renames files meanwhile
            newest = max(newest, file.stat().st_mtime)
    return newest


def written(dsn: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every table of the sink, as `contents`."""
    with psycopg.connect(dsn, autocommit=True) as db:
        return contents(db)


def expected_of(dsn: str, folder: Path, batches: int) -> dict[str, list[tuple[Any, ...]]]:
    """Write the batches of a query without Spark to another database, and return its tables."""
    query_id = UUID(json.loads((folder / "checkpoint" / "metadata").read_text())["id"])
    driver = Driver(dsn, query_id=query_id)
    for number in range(batches):
        driver.tables(number, pa.Table.from_pylist(rows(number), SCHEMA))
    driver.sink.close()
    return written(dsn)
