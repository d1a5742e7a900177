"""The sink in environments of other people: other versions of Spark, Python, PyArrow and NumPy.

Real: a streaming query in each environment, Spark with its JVM, SIGKILL at each of the sink's
points, Postgres. The environment has the wheel and nothing of this tree. Compared: every table of
the sink with what the sink of this environment writes of the same rows without Spark. `make
test-versions` makes the environments and runs it; not part of `make test`, because it takes long.
"""

import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.support.job.environments import ENVIRONMENTS, Environment, build_wheel
from tests.support.job.sink_events import expected_of, rows, run_job, write_events, written
from tests.support.job.version_table import record

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

POINTS = {
    "driver": [f"S{number}=kill" for number in range(1, 10)],
    # Of the tasks one fails behind its last row, and the worker of one dies behind its first.
    "staged": [*(f"S{number}=kill" for number in range(1, 10)), "T2/0/0=raise;T1/1/0=kill"],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=ENVIRONMENTS, ids=str)
def environment(request: pytest.FixtureRequest, wheel: Path) -> Environment:
    made: Environment = request.param
    try:
        made.make(wheel)
    except LookupError as error:
        pytest.skip(str(error))
    return made


@pytest.mark.parametrize("path", POINTS)
def test_killed_at_each_point_the_sink_writes_what_it_writes_here(
    environment: Environment,
    path: str,
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> None:
    python, points = environment.interpreter, POINTS[path]
    for number in range(len(points) + 1):
        write_events(tmp_path, number, rows(number))
    dsn, undisturbed = (make_database(template_database) for _ in range(2))

    began, kills = time.monotonic(), 0
    for point in points:
        code, output = run_job(python, tmp_path, dsn, path, point)
        assert code == (0 if point.startswith("T") else -SIGKILL), output
        kills += code == -SIGKILL
    code, output = run_job(python, tmp_path, dsn, path, "")
    assert code == 0, output
    seconds = time.monotonic() - began

    expected = expected_of(undisturbed, tmp_path, len(points) + 1)
    assert written(dsn) == expected
    assert expected["quarantine"]
    assert expected["suppressed"]

    # The last batch comes again with other rows.
    (tmp_path / "checkpoint" / "commits" / str(len(points))).unlink()
    (tmp_path / "checkpoint" / "commits" / f".{len(points)}.crc").unlink(missing_ok=True)
    write_events(tmp_path, len(points), rows(len(points))[:-1])
    code, output = run_job(python, tmp_path, dsn, path, "")
    assert code == 1
    assert "ReplayDiverged" in output
    assert written(dsn) == expected
    tasks = sum(point.count("T") for point in points)
    faults = f"{kills} kills of the driver" + (f", {tasks} of tasks" if tasks else "")
    record(environment, path, dsn, faults, seconds)
