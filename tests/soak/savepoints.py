"""Savepoints of a running job on S3, by the commands as people give them, and what they cost.

Real: `holdfast job`, Spark, Postgres, the S3 protocol. `make test-remote` runs it.
"""

import json
import re
import time
from pathlib import Path
from statistics import median

import pytest

from tests.support.command import holdfast
from tests.support.job.job_process import JobProcess, job_process
from tests.support.job.job_stream import published
from tests.support.job.jobs import busy, commits, put
from tests.support.servers.s3 import FOLDER, S3, s3

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SAVEPOINTS = 5
"""So many are written before the job is stopped; two are kept."""

_BATCH = re.compile(r"^batch=\d+ .* ms=(\d+)")
_SAVED = re.compile(r"^holdfast: savepoint of batch \d+ in ([0-9.]+)s: (\S+)")


def _options(server: S3) -> list[str]:
    settings = [f"spark.hadoop.{name}={value}" for name, value in server.settings.items()]
    jars = sorted(str(jar) for jar in FOLDER.absolute().glob("*.jar"))
    return [
        *(w for s in settings for w in ("--conf", s)),
        *(w for j in jars for w in ("--jars", j)),
    ]


def _watched(job: JobProcess, folder: Path) -> list[tuple[float, str]]:
    """Feed the job a file for each batch, and return its lines, each with the time it came."""
    lines: list[tuple[float, str]] = []
    number = 0

    def fed() -> bool:
        nonlocal number
        if len(commits(folder / "checkpoint")) >= number:
            number += 1
            put(folder / "events", number, busy(number, number, rows=2000))
        now, said = time.monotonic(), job.said.splitlines()
        lines.extend((now, line) for line in said[len(lines) :])
        return sum(bool(_SAVED.match(line)) for _, line in lines) >= SAVEPOINTS

    job.until(fed)
    return lines


def _batches(lines: list[tuple[float, str]]) -> tuple[list[int], list[int], list[float]]:
    """Milliseconds of the batches beside a savepoint and of the others; seconds of savepoints."""
    saved = [(at, float(m[1])) for at, line in lines if (m := _SAVED.match(line))]
    beside, others = [], []
    for at, line in lines:
        if match := _BATCH.match(line):
            began = at - int(match[1]) / 1000
            is_beside = any(began < end and at > end - took for end, took in saved)
            (beside if is_beside else others).append(int(match[1]))
    return beside, others, [took for _, took in saved]


def test_savepoints_of_a_running_job_on_s3_continue_it_elsewhere(
    dsn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with s3() as server:
        place, client = f"{server.uri}/saved", _options(server)
        schedule = ("--savepoint-every", "15s", "--savepoint-to", place, "--savepoint-keep", "2")
        options = ("--key-groups", "4", "--trigger-interval", "500ms", *schedule, *client)
        with job_process(tmp_path, dsn, *options) as job:
            lines = _watched(job, tmp_path)
        assert "warning" not in job.said
        verified = holdfast("job", "savepoints", "verify", "--in", place, "--json", *client)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        kept = json.loads(verified.stdout)["savepoints"]
        assert 2 <= len(kept) <= 3
        # The job was killed; a new checkpoint takes over from the place on S3.
        words = ("--from-savepoint", f"{place}/{kept[0]['savepoint']}", "--available-now")
        again = ("--checkpoint", str(tmp_path / "new"), *words, "--key-groups", "7", *client)
        with job_process(tmp_path, dsn, *again) as job:
            assert job.wait() == 0, job.said
        assert published(dsn)[0]
    beside, others, took = _batches(lines)
    assert beside, lines
    assert others, lines
    with capsys.disabled():
        print(
            f"\n{len(took)} savepoints of {kept[0]['bytes']:,} bytes, median {median(took):.1f}s;"
            f" a batch beside one {median(beside):.0f} ms ({len(beside)}),"
            f" another {median(others):.0f} ms ({len(others)}):"
            f" ratio {median(beside) / median(others):.2f}"
        )
