"""SIGKILL at the points at which a checkpoint is begun from a savepoint, or gets another source.

An exception lets Python and the JVM clean up; a kill leaves what was written, also temporary files.
Each point pays the start of a JVM: `make kills-checkpoints` plays them, and `make test` raises at
them (test_job_savepoint, test_job_sources).
"""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.job.job_process import QUICK, job_process
from tests.support.job.job_stream import Rows, lasting
from tests.support.job.jobs import Play, event

pytestmark = [pytest.mark.rest, pytest.mark.timeout(900)]

POINTS = os.environ.get("HOLDFAST_TEST_KILL_POINTS", "").split()
"""All of them: P2 P3 P5 P6 K1 K2. P1 and P4 leave what P2 and P3 do, and one whole file."""


@pytest.fixture(scope="module")
def made(shared_play: Play) -> Play:
    """A stream that has read its files, and a savepoint of its newest batch."""
    rows = enumerate(("12:00", "12:10", "12:20"))
    shared_play.put(*([event(f"e{number}", clock, 6_000_000)] for number, clock in rows))
    shared_play.command()
    shared_play.save(str(shared_play.checkpoint), str(shared_play.folder / "saved"))
    return shared_play


@pytest.fixture
def play(made: Play, make_database: Callable[[str | None], str]) -> Play:
    """It for one test, with an empty directory for more events."""
    (made.folder / "more").mkdir(exist_ok=True)
    return Play(made.spark, make_database(conninfo_to_dict(made.dsn)["dbname"]), made.folder)


def _written(dsn: str) -> list[Rows]:
    return [*lasting(dsn, "entries", "windows").values()]


def _killed(play: Play, point: str, *options: str) -> None:
    armed = {"HOLDFAST_FAILPOINTS": f"{point}=kill"}
    with job_process(
        play.folder, play.dsn, *QUICK, "--available-now", *options, environment=armed
    ) as job:
        assert job.wait() == -signal.SIGKILL, job.said
        # The JVM too, as when a machine is gone.
        with suppress(ProcessLookupError):
            job.kill()


@pytest.mark.parametrize("point", [each for each in POINTS if each.startswith("P")])
def test_same_command_repairs_a_kill_while_a_savepoint_is_taken_over(
    play: Play, point: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, checkpoint, saved = _written(play.dsn), tmp_path / "new", str(play.folder / "saved")
    assert [len(rows) > 0 for rows in before] == [True, True]
    _killed(play, point, "--checkpoint", str(checkpoint), "--from-savepoint", saved)
    complete = point in {"P5", "P6"}
    assert (checkpoint / "holdfast.json").exists() == complete
    query_id = json.loads((checkpoint / "metadata").read_text())["id"]
    if not complete:
        with pytest.raises(CommandError, match="--from-savepoint"):
            play.command(checkpoint=str(checkpoint))
    play.command(checkpoint=str(checkpoint), savepoint=saved)
    assert ("holdfast: began" in capsys.readouterr().err) == (point != "P6")
    assert json.loads((checkpoint / "metadata").read_text())["id"] == query_id
    play.put([event("e9", "12:50", 1)], first=9)
    try:
        play.command(checkpoint=str(checkpoint))
    finally:
        (play.folder / "events" / "009.json").unlink()
    after = _written(play.dsn)
    assert all(set(was) <= set(rows) for was, rows in zip(before, after, strict=True))
    with psycopg.connect(play.dsn) as db:
        adopted = db.execute("SELECT query_id::text FROM holdfast.stream").fetchall()
    assert adopted == [(query_id,)]


@pytest.mark.parametrize("point", [each for each in POINTS if each.startswith("K")])
def test_same_command_repairs_a_kill_while_a_path_is_added(
    play: Play, point: str, tmp_path: Path
) -> None:
    kept = Path(shutil.copytree(play.checkpoint, tmp_path / "kept"))
    before, more = _written(play.dsn), str(play.folder / "more")
    try:
        _killed(play, point, "--path", more)
        with pytest.raises(CommandError, match=f"--path {more} is missing"):
            play.command()
        options = (*QUICK, "--available-now", "--path", more)
        with job_process(play.folder, play.dsn, *options) as job:
            assert job.wait() == ExitCode.OK, job.said
        assert "holdfast: nothing new to read\n" in job.said
        assert _written(play.dsn) == before
    finally:
        shutil.rmtree(play.checkpoint)
        kept.rename(play.checkpoint)
