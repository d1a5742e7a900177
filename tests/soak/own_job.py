"""The example of an own job on Spark 3.5 with old libraries, and behind Spark Connect.

Real: environments with the wheel alone, five kills, Postgres; behind Connect the worker
beside the server is killed, and the server with it. Compared: its decisions with the events read
again in plain Python. `make test-versions` runs it; not part of `make test`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import pytest

from tests.soak.sink_connect import server
from tests.support.job import order_review
from tests.support.job.environments import Environment, build_wheel
from tests.support.job.order_review import CHANGED, FIRST, Expected

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

KILLS = [f"{point}=kill@2" for point in ("S2", "S4", "S7", "S8", "S9")]
"""Each in the second batch of its run; the run before it left the first one to be repeated."""

PLACES = [
    Environment("3.5.9", "3.10", lowest=True),
    Environment("4.3.0", "3.11", lowest=False, has_connect=True),
]


@pytest.mark.parametrize("environment", PLACES, ids=str)
def test_killed_job_decides_what_its_events_say(
    environment: Environment,
    make_database: Callable[[str | None], str],
    template_database: str,
    tmp_path: Path,
) -> None:
    try:
        environment.make(build_wheel(tmp_path / "wheel"))
    except LookupError as error:
        pytest.skip(str(error))
    dsn, expected = make_database(template_database), Expected()

    def run(point: str) -> int:
        python = environment.interpreter
        if not environment.has_connect:
            return order_review.run_job(tmp_path, dsn, point, python)
        with server(environment, tmp_path, point) as address:
            return order_review.run_job(tmp_path, dsn, python=python, remote=address)

    codes: list[int] = []
    files = order_review.events(len(KILLS) + 2)
    order_review.write(tmp_path / "events", {0: files[0]})
    for number, point in enumerate([*KILLS, ""], start=1):
        policy = FIRST if number == 1 else CHANGED
        (tmp_path / "policy.json").write_text(json.dumps(policy))
        order_review.write(tmp_path / "events", {number: files[number]})
        codes.append(run(point))
    for number, rows in enumerate(files):
        expected.add(rows, FIRST if number < 2 else CHANGED)

    killed = 1 if environment.has_connect else -SIGKILL
    assert codes == [*[killed] * len(KILLS), 0], (tmp_path / "job.txt").read_text()
    assert order_review.decided(dsn) == expected.orders
    assert order_review.counts(dsn) == (*expected.counts, len(files))
