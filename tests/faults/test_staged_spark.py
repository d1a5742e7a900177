"""Faults of Spark itself on the staged path: tasks that are run again, and a killed driver.

Real: Spark, its retries, SIGKILL of a worker and of the driver. Asserted: the rows of
every table of the sink, compared with what the driver path leaves of the same rows.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import psycopg
import pytest

from tests.support.job.sink_events import expected_of, rows, run_job, write_events, written

pytestmark = [pytest.mark.rest, pytest.mark.faults, pytest.mark.spark]

BATCHES = 3


def test_failed_tasks_and_a_killed_driver_leave_undisturbed_results(
    make_database: Callable[[str | None], str], template_database: str, tmp_path: Path
) -> None:
    for number in range(BATCHES):
        write_events(tmp_path, number, rows(number))
    dsn, undisturbed = (make_database(template_database) for _ in range(2))

    # Partition 0 fails behind its last row, and the worker of partition 1 dies behind its first.
    code, output = run_job(
        sys.executable, tmp_path, dsn, "staged", "T2/0/0=raise;T1/1/0=kill;S7=kill@2"
    )
    assert code == -SIGKILL, output
    assert "FailpointHit: T2/0/0" in output
    assert "Python worker exited unexpectedly" in output
    assert [row[2] for row in written(dsn)["batch"]] == [0]

    code, output = run_job(sys.executable, tmp_path, dsn, "staged", "")
    assert code == 0, output
    assert written(dsn) == expected_of(undisturbed, tmp_path, BATCHES)
    with psycopg.connect(dsn) as db:
        assert db.execute("SELECT count(*) FROM holdfast.stage").fetchone() == (0,)
