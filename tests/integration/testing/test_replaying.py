"""`replay` on real processes, SIGKILL and Postgres: what a kill changes is a failure by name."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import ReplayFailed, replay
from tests.support.job import recorded

pytestmark = [pytest.mark.faults, pytest.mark.rest]


@pytest.fixture
def run(
    make_database: Callable[[str | None], str], template_database: str, tmp_path: Path
) -> Callable[..., int]:
    """Replay a job over three recorded batches."""
    recorded.record(tmp_path / "batches", 3)

    def start(job: Any, **settings: Any) -> int:
        outboxes = (tmp_path / "batches", lambda: make_database(template_database))
        return replay(job, *outboxes, tmp_path / "runs", **settings)

    return start


def test_sound_job_leaves_the_same_whatever_kills_it(run: Callable[..., int]) -> None:
    assert run(recorded.job, nth=2) == 9


def test_job_that_decides_by_more_than_its_rows_is_found(run: Callable[..., int]) -> None:
    with pytest.raises(ReplayFailed, match=r"killed at S4, .* Table entry: 6 rows without a kill"):
        run(recorded.forgetful_job, points=["S4"])


def test_replay_that_the_sink_refuses_is_shown(run: Callable[..., int]) -> None:
    with pytest.raises(ReplayFailed, match=r"(?s)the job \(S8\) ended with 1: .*ReplayDiverged"):
        run(recorded.forgetful_job, points=["S8"])


def test_point_that_is_not_passed_is_no_success(run: Callable[..., int]) -> None:
    with pytest.raises(ReplayFailed, match="does not pass S4 4 times"):
        run(recorded.job, points=["S4"], nth=4)


def test_job_that_fails_by_itself_is_not_taken_for_killed(run: Callable[..., int]) -> None:
    with pytest.raises(ReplayFailed, match=r"(?s)\(unkilled\) ended with 1: .*no such column"):
        run(recorded.failing_job)


def test_job_that_fails_before_its_kill_is_not_taken_for_killed(run: Callable[..., int]) -> None:
    with pytest.raises(ReplayFailed, match="ended with 1 before S4 could kill it"):
        run(["sh", "-c", 'test -z "$HOLDFAST_FAILPOINTS"'], points=["S4"])


def test_command_finds_batches_checkpoint_and_outbox(run: Callable[..., int]) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tests.support.job.recorded import job;"
        "job(os.environ['HOLDFAST_DSN'], *map(Path, sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "{batches}", "{checkpoint}"]
    assert run(command, points=["S7", "S8"]) == 2


def test_job_that_does_not_end_is_stopped_with_its_children(run: Callable[..., int]) -> None:
    with pytest.raises(ReplayFailed, match="did not end within 1 s"):
        run(["sh", "-c", "sleep 600 & wait"], seconds=1)
