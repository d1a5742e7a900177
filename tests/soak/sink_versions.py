"""The sink in environments of other people: other versions of Spark, Python, PyArrow and NumPy.

Real: a streaming query in each environment, Spark with its JVM, SIGKILL at each of the sink's
points, Postgres. The environment has the wheel and nothing of this tree. Compared: every table of
the sink with what the sink of this environment writes of the same rows without Spark. `make
test-versions` makes the environments and runs it; not part of `make test`, because it takes long.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from typing import Any
from uuid import UUID

import psycopg
import pyarrow as pa
import pytest

from holdfast.deploy.local.java import spark_environment
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.dispatch.sender import BLOCK, NOON, alternating, decision
from tests.support.job.driver import Driver
from tests.support.job.environments import ENVIRONMENTS, FOLDER, Environment, build_wheel
from tests.support.job.job_stream import contents
from tests.support.job.staged_spark import write_events

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).parents[1] / "support" / "job" / "sink_job.py"
TABLE = FOLDER / "table.md"
ROWS: list[str] = []
SECONDS = 240

POINTS = {
    "driver": [f"S{number}=kill" for number in range(1, 10)],
    # Of the tasks one fails behind its last row, and the worker of one dies behind its first.
    "staged": [*(f"S{number}=kill" for number in range(1, 10)), "T2/0/0=raise;T1/1/0=kill"],
}

FAULTS = sum(map(len, POINTS.values()))

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


def run(python: str, folder: Path, dsn: str, path: str, failpoints: str) -> tuple[int, str]:
    """Run the query until it ends or is killed; return how, and what it printed."""
    log = folder / "stderr.txt"
    with log.open("wb") as stderr:
        started = subprocess.Popen(
            [python, str(PROGRAM), dsn, str(folder), path],
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
        return started.wait(SECONDS), log.read_text(errors="replace")
    finally:
        if started.poll() is None:
            os.killpg(started.pid, SIGKILL)
            started.wait()


def written(dsn: str) -> dict[str, list[tuple[Any, ...]]]:
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=ENVIRONMENTS, ids=str)
def python(request: pytest.FixtureRequest, wheel: Path) -> Iterator[str]:
    """The interpreter of an environment; at the end it gets a row in docs/spark/versions.md."""
    environment: Environment = request.param
    try:
        environment.make(wheel)
    except LookupError as error:
        pytest.skip(str(error))
    failed = request.session.testsfailed
    yield environment.interpreter
    if request.session.testsfailed == failed:
        ROWS.append(f"| {' | '.join(environment.versions())} | {FAULTS} |")
        TABLE.write_text("\n".join(ROWS) + "\n")


@pytest.mark.parametrize("path", POINTS)
def test_killed_at_each_point_the_sink_writes_what_it_writes_here(
    python: str,
    path: str,
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> None:
    points = POINTS[path]
    for number in range(len(points) + 1):
        write_events(tmp_path, number, rows(number))
    dsn, undisturbed = (make_database(template_database) for _ in range(2))

    for point in points:
        code, output = run(python, tmp_path, dsn, path, f"{point}@1" if "T" not in point else point)
        assert code == (-SIGKILL if "T" not in point else 0), output
    code, output = run(python, tmp_path, dsn, path, "")
    assert code == 0, output

    expected = expected_of(undisturbed, tmp_path, len(points) + 1)
    assert written(dsn) == expected
    assert expected["quarantine"]
    assert expected["suppressed"]

    # The last batch comes again with other rows.
    (tmp_path / "checkpoint" / "commits" / str(len(points))).unlink()
    (tmp_path / "checkpoint" / "commits" / f".{len(points)}.crc").unlink(missing_ok=True)
    write_events(tmp_path, len(points), rows(len(points))[:-1])
    code, output = run(python, tmp_path, dsn, path, "")
    assert code == 1
    assert "ReplayDiverged" in output
    assert written(dsn) == expected
