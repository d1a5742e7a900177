"""The JVM of a job dies within writes of its checkpoint: part of `make kills-checkpoints`.

Hadoop runs `chmod` as a program in the middle of each write, when the file is open and still empty.
A program of that name, first in the PATH of the job, kills the JVM there.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.support.job.job_process import QUICK, job_process
from tests.support.job.jobs import Play, event, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 5
WRITES = {"offsets": "offsets/.1.", "commits": "commits/.2.", "state": "state/0/0/.3_"}
"""In which writes the JVM dies, each once."""

KILLER = """#!/bin/sh
for file in "$@"; do :; done
point=none
case "$file" in
{cases}
esac
if [ $point != none ] && mkdir {folder}/killed-in-$point 2>/dev/null; then kill -9 $PPID; fi
PATH={path} exec chmod "$@"
"""
COUNTED = """#!/bin/sh
echo "$@" >>{folder}/looks.txt
PATH={path} exec readlink "$@"
"""


@pytest.fixture
def play(spark: "SparkSession", dsn: str, tmp_path: Path) -> Play:
    return Play(spark, dsn, tmp_path)


def _left(dsn: str) -> list[tuple[Any, ...]]:
    """The decisions and windows that the job wrote."""
    with psycopg.connect(dsn) as db:
        decisions = db.execute(
            "SELECT name, sequence, key, convert_from(body, 'UTF8') FROM holdfast.entry"
            " JOIN holdfast.subject ON subject.id = entry.subject_id ORDER BY 1, 2"
        ).fetchall()
        assert decisions
        return (
            decisions
            + db.execute(
                "SELECT merchant_id, window_end, revision, exposure_minor"
                " FROM holdfast.exposure_window ORDER BY 1, 2"
            ).fetchall()
        )


def _programs(folder: Path) -> Path:
    programs = folder / "programs"
    programs.mkdir()
    cases = "\n".join(f"*/checkpoint/{name}*) point={point} ;;" for point, name in WRITES.items())
    for name, text in (("chmod", KILLER), ("readlink", COUNTED)):
        file = programs / name
        file.write_text(text.format(cases=cases, folder=folder, path=os.environ["PATH"]))
        file.chmod(0o755)
    return programs


@pytest.mark.timeout(900)
def test_java_killed_within_a_write_repeats_and_loses_nothing(
    play: Play, dsn: str, make_database: Callable[[str | None], str], template_database: str
) -> None:
    for number in range(FILES):
        clock = f"{12 + number * 12 // 60}:{number * 12 % 60:02}"
        amount = [3_000_000, -2_000_000][number % 3 == 2]
        put(
            play.folder / "events",
            number,
            [event(f"e{number}-{i}", clock, amount, f"m_{i % 5}") for i in range(10)],
        )
    attacked = make_database(template_database)
    path = f"{_programs(play.folder)}:{os.environ['PATH']}"
    with job_process(
        play.folder, attacked, *QUICK, "--available-now", environment={"PATH": path}
    ) as job:
        assert job.wait() == 0, job.said
        said = job.said
    for point in WRITES:
        assert (play.folder / f"killed-in-{point}").exists()
    assert said.count("Java process has died") == len(WRITES), said
    (play.folder / "checkpoint").rename(play.folder / "checkpoint of the attacked")
    play.run()
    assert _left(attacked) == _left(dsn)
    looks = play.folder / "looks.txt"
    assert not looks.exists() or "/checkpoint/offsets/" not in looks.read_text()
