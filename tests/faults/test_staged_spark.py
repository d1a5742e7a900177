"""Faults of Spark itself on the staged path: tasks that are run again, and a killed driver.

Real: Spark, its retries, SIGKILL of a worker and of the driver. Asserted: the rows of
every table of the sink, compared with what the driver path leaves of the same rows.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import psycopg
import pytest

from holdfast.deploy.local.java import spark_environment
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.job.job_stream import contents
from tests.support.job.sink_program import BATCHES, rows
from tests.support.job.staged_spark import check_as_on_the_driver_path, write_events

pytestmark = [pytest.mark.rest, pytest.mark.faults, pytest.mark.spark]

SECONDS = 240


def _run(dsn: str, folder: Path, failpoints: str) -> tuple[int, str]:
    """Run the driver until it ends; returns how, and what it said."""
    log = folder / "stderr.txt"
    with log.open("wb") as stderr:
        started = subprocess.Popen(
            [sys.executable, "-m", "tests.support.job.staged_spark", dsn, str(folder)],
            cwd=Path(__file__).parents[2],
            env={**os.environ, **spark_environment(), ENVIRONMENT: failpoints},
            stderr=stderr,
            start_new_session=True,
        )
    try:
        return started.wait(SECONDS), log.read_text(errors="replace")
    finally:
        if started.poll() is None:
            os.killpg(started.pid, SIGKILL)
            started.wait()


def test_failed_tasks_and_a_killed_driver_leave_undisturbed_results(
    make_database: Callable[[str | None], str], template_database: str, tmp_path: Path
) -> None:
    for number in range(BATCHES):
        write_events(tmp_path, number, rows(number))
    dsn, undisturbed = (make_database(template_database) for _ in range(2))

    # Partition 0 fails behind its last row, and the worker of partition 1 dies behind its first.
    code, output = _run(dsn, tmp_path, "T2/0/0=raise;T1/1/0=kill;S7=kill@2")
    assert code == -SIGKILL, output
    assert "FailpointHit: T2/0/0" in output
    assert "Python worker exited unexpectedly" in output
    with psycopg.connect(dsn, autocommit=True) as db:
        assert [row[2] for row in contents(db)["batch"]] == [0]

    code, output = _run(dsn, tmp_path, "")
    assert code == 0, output
    check_as_on_the_driver_path(dsn, undisturbed, tmp_path)
