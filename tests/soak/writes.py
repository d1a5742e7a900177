"""The JVM of a job dies within writes of its checkpoint: part of `make kills-checkpoints`.

Hadoop runs `chmod` as a program in the middle of each write, when the file is open and still empty.
A program of that name, first in the PATH of the job, kills the JVM there.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.job.job_process import QUICK, job_process
from tests.support.job.job_stream import outcome
from tests.support.job.jobs import event, put

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
    make_database: Callable[[str | None], str], template_database: str, tmp_path: Path
) -> None:
    killed, undisturbed = (make_database(template_database) for _ in range(2))
    for name in ("killed", "undisturbed"):
        (tmp_path / name).mkdir()
        for number in range(FILES):
            clock = f"{12 + number * 12 // 60}:{number * 12 % 60:02}"
            amount = [3_000_000, -2_000_000][number % 3 == 2]
            lines = [event(f"e{number}-{i}", clock, amount, f"m_{i % 5}") for i in range(10)]
            put(tmp_path / name / "events", number, lines)
    folder = tmp_path / "killed"
    path = {"PATH": f"{_programs(folder)}:{os.environ['PATH']}"}
    with job_process(folder, killed, *QUICK, "--available-now", environment=path) as job:
        assert job.wait() == 0, job.said
        output = job.said
    for point in WRITES:
        assert (folder / f"killed-in-{point}").exists()
    assert output.count("Java process has died") == len(WRITES), output
    looks = folder / "looks.txt"
    assert not looks.exists() or "/checkpoint/offsets/" not in looks.read_text()

    with job_process(tmp_path / "undisturbed", undisturbed, *QUICK, "--available-now") as job:
        assert job.wait() == 0, job.said
    assert outcome(killed) == outcome(undisturbed)
    assert outcome(killed)["entry"]
