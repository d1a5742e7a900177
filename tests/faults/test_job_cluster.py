"""The job on a standalone cluster: a master and two workers as processes, one executor killed."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.support.cluster.standalone import options, standalone
from tests.support.job.job_outcome import outcome
from tests.support.job.job_process import check_ledger, job_process
from tests.support.job.job_stream import OPTIONS, stream

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1200)]

FILES = 3
MASTER = ("--available-now", "--trigger-interval", "100ms", *OPTIONS)


def test_executor_killed_in_a_batch_leaves_what_a_local_run_leaves(
    make_database: Callable[[str | None], str], template_database: str, tmp_path: Path
) -> None:
    made = stream(7, FILES)
    on_cluster, on_this_machine = (make_database(template_database) for _ in range(2))
    for name in ("cluster", "local"):
        (tmp_path / name).mkdir()
        made.put(tmp_path / name / "events")
    checkpoint = tmp_path / "cluster" / "checkpoint"

    with (
        standalone(tmp_path / "spark") as cluster,
        job_process(tmp_path / "cluster", on_cluster, *MASTER, *options(cluster)) as job,
    ):
        job.until(lambda: _planned(checkpoint, 1) and len(cluster.executors()) == 2)
        cluster.kill_executor()
        job.until(lambda: _planned(checkpoint, 2))
        assert job.wait() == 0, job.said
        assert "restart=" not in job.said
    with psycopg.connect(on_cluster) as db:
        check_ledger(db, checkpoint)

    with job_process(tmp_path / "local", on_this_machine, *MASTER, "--master", "local[2]") as job:
        assert job.wait() == 0, job.said
    assert outcome(on_cluster) == outcome(on_this_machine)
    assert outcome(on_cluster)["entry"]


def _planned(checkpoint: Path, batch: int) -> bool:
    """Whether a batch is planned and not recorded, or was."""
    return (checkpoint / "offsets" / str(batch)).exists()
