"""The founding example on real files, a real driver and a real outbox, killed at every bad moment.

m_482 may be exposed by $50,000. Window 12:00-12:15 has $85,000: the payout is held. Window
12:15-12:30 stands at $40,000 from e917, e918 and e919 when e920, a payout of $18,000, arrives and
the driver dies before its checkpoint. Either e920 is in the state or it comes again; it must never
count twice or not at all. At 12:30 the window has $22,000, and the hold is released, once.

What is real: the `holdfast job run` process that is killed, with its JVM and Python workers, the
checkpoint, and Postgres. Nothing is doubled. Asserted on: the tables of the outbox, the files of
the checkpoint, and what docs/from-the-lesson.md shows of this run.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from holdfast.deploy.local.java import spark_environment
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.failpoints import ENVIRONMENT
from tests.support.command import holdfast
from tests.support.documents.pages import ROOT
from tests.support.documents.transcript import Transcripts
from tests.support.job.job_process import QUICK, job_process
from tests.support.job.job_stream import ledger
from tests.support.job.jobs import Play, commits, event
from tests.support.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.rest, pytest.mark.faults]

PAGE = "docs/from-the-lesson.md"

FILES = [
    [
        event("e914", "12:02", 5_000_000, "m_482"),
        event("e915", "12:07", 2_500_000, "m_482"),
        event("e916", "12:14", 1_000_000, "m_482"),
    ],
    [
        event("e917", "12:16", 2_500_000, "m_482"),
        event("e918", "12:17", 500_000, "m_482"),
        event("e919", "12:20", 1_000_000, "m_482"),
    ],
    # The batch of this file runs at W = 12:19:30: it absorbs e920 and blocks for 12:00-12:15.
    [event("e920", "12:24", -1_800_000, "m_482")],
    # Somebody else's event moves W to 12:30:30, so that the batch after it releases.
    [event("e1", "12:31", 100, "m_1")],
]
E920, RELEASE = 2, 4
"""The ids of the batches in question."""


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """The session of `job inspect`, started once for all its commands."""
    from holdfast.spark_app.runtime.engine import start_quietly

    with pytest.MonkeyPatch.context() as environment:
        for name, value in spark_environment().items():
            environment.setenv(name, value)
        session = start_quietly("holdfast inspect")
        yield session
        session.stop()


@pytest.fixture
def reader(
    spark: "SparkSession", dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """Return the output of a command that the page shows, given in the folder of the run."""
    from holdfast.spark_app.inspection import answer

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(answer, "start_quietly", lambda *_: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOLDFAST_DSN": dsn, "LC_ALL": "C"}

    def read(command: str) -> str:
        if command.startswith("holdfast job inspect"):
            done = holdfast(*command.split()[1:], process=False)
        else:
            done = subprocess.run(  # noqa: S602 - a line of our page
                command, shell=True, env=environment, capture_output=True, text=True, check=False
            )
        assert done.returncode in {ExitCode.OK, ExitCode.NOTHING_MATCHED}, (
            f"{command}\n{done.stderr}"
        )
        return done.stdout + done.stderr

    return read


def _run_and_kill(play: Play, failpoint: str, turn: int) -> None:
    """Run until the driver passes a point for the nth time, and kill all of it there."""
    folder = play.folder / f"{failpoint}-{turn}"
    armed = {ENVIRONMENT: f"{failpoint}=pause:{folder}@{turn}"}
    words = ("--available-now", *QUICK)
    with job_process(play.folder, play.dsn, *words, environment=armed) as job:
        job.until(folder.exists)
        job.kill()
        assert job.wait() == -9
    folder.unlink()


def _batches(play: Play) -> list[int]:
    return [batch_id for _, batch_id, *_ in ledger(play.dsn)]


def _bodies(db: psycopg.Connection) -> list[dict[str, Any]]:
    rows = db.execute("""
        SELECT body FROM holdfast.entry JOIN holdfast.subject ON subject.id = entry.subject_id
        WHERE name = 'm_482' ORDER BY sequence
    """).fetchall()
    return [json.loads(body) for (body,) in rows]


@pytest.mark.timeout(900)
def test_m_482_is_blocked_once_and_released_once_wherever_the_driver_dies(
    world: World,
    spark: "SparkSession",
    reader: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, play = Transcripts(PAGE, reader), Play(spark, world.dsn, world.tmp_path)
    play.put(*FILES)

    # Inside the transaction of e920's batch: nothing of it is there.
    _run_and_kill(play, "S6", turn=3)
    assert (_batches(play), commits(play.checkpoint)) == ([0, 1], [0, 1])
    assert _bodies(world.db) == []
    page.check("S6")

    # The database has it, Spark does not know: once when COMMIT was answered ...
    _run_and_kill(play, "S8", turn=1)
    assert (_batches(play), commits(play.checkpoint)) == ([0, 1, E920], [0, 1])
    assert [body["type"] for body in _bodies(world.db)] == ["payout_hold.block"]
    page.check("S8")

    # ... and once, two batches later, when foreachBatch was about to return.
    _run_and_kill(play, "S9", turn=3)
    assert (_batches(play), commits(play.checkpoint)) == ([0, 1, E920, 3, RELEASE], [0, 1, E920, 3])
    page.check("S9")

    play.command()
    assert f"batch={RELEASE} outcome=replayed " in capsys.readouterr().err

    block, release = _bodies(world.db)
    assert (block["type"], block["sequence"]) == ("payout_hold.block", 1)
    assert (release["type"], release["sequence"]) == ("payout_hold.release", 2)
    assert (block["data"]["window_end"], release["data"]["window_end"]) == (
        "2024-11-04T12:15:00Z",
        "2024-11-04T12:30:00Z",
    )
    assert block["data"]["exposure_minor"] == 8_500_000
    assert release["data"]["exposure_minor"] == 2_200_000
    assert world.db.execute("SELECT count(*) FROM holdfast.entry").fetchone() == (2,)
    assert world.db.execute("SELECT count(*) FROM holdfast.late_event").fetchone() == (0,)
    assert world.db.execute("""
        SELECT sum(duplicate_count), sum(suppressed_count), sum(quarantined_count)
        FROM holdfast.batch
    """).fetchone() == (0, 0, 0)
    page.check()
    assert not page.left


def test_settings_that_the_page_names_are_those_of_spark(spark: "SparkSession") -> None:
    text = (ROOT / PAGE).read_text()
    defaults = spark.newSession().conf
    named = re.findall(r"`(spark\.[\w.]+)`(?: \((\w+)\))?", text)
    assert named
    for name, default in named:
        # RocksDB's settings are read by name and not registered.
        if not name.startswith("spark.sql.streaming.stateStore.rocksdb."):
            assert default in {"", defaults.get(name)}, name
