"""The job on a standalone cluster: a master and two workers as processes, one executor killed."""

import pytest

from tests.support.cluster.standalone import options, standalone
from tests.support.job.job_process import check_ledger, job_process
from tests.support.job.job_stream import OPTIONS, published, required, stream
from tests.support.world import World

pytestmark = [pytest.mark.rest, pytest.mark.faults, pytest.mark.spark, pytest.mark.timeout(1200)]

FILES = 3


def test_executor_killed_in_a_task_repeats_and_loses_nothing(world: World) -> None:
    events = stream(7, FILES)
    events.put(world.tmp_path / "events")
    checkpoint = world.tmp_path / "checkpoint"
    run = ("--available-now", "--trigger-interval", "100ms", *OPTIONS)

    with (
        standalone(world.tmp_path / "spark") as cluster,
        job_process(world.tmp_path, world.dsn, *run, *options(cluster)) as job,
    ):
        # The second batch has state, which the next executor has to load.
        job.until(lambda: (checkpoint / "offsets" / "1").exists() and cluster.kill_busy_executor())
        assert job.wait() == 0, job.said
        assert "restart=" not in job.said

    check_ledger(world.db, checkpoint)
    assert published(world.dsn) == required(events.expected(world.tmp_path / "policy.toml"))
    assert published(world.dsn)[0]
