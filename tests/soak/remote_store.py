"""The bad days of an object store that has the checkpoint of a running job, and kills beside it.

Real: `holdfast job`, Spark with Hadoop's S3 client, Postgres, SIGKILL. The store is moto, which is
told to refuse, to be silent or to lose its bucket. `make test-remote` runs it.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.job.job_kills import play
from tests.support.job.job_process import QUICK, JobProcess, job_process
from tests.support.job.jobs import event, put
from tests.support.servers.databases import copy_of
from tests.support.servers.s3 import S3, s3
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

SECONDS = 60
"""Within which a person reads what is wrong with the store, from the first request that failed."""

OWN = ("retry.limit", "retry.interval")
"""Settings of the tests' own that would hide the job's limits."""

SEEDS = [int(seed) for seed in os.environ.get("HOLDFAST_TEST_S3_SEEDS", "1").split()]


@pytest.fixture
def store() -> Iterator[S3]:
    with s3() as server:
        yield server


def _options(store: S3, checkpoint: str) -> tuple[str, ...]:
    settings = {
        name: value for name, value in store.spark_settings.items() if not name.endswith(OWN)
    }
    words = [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    return ("--checkpoint", checkpoint, *words)


DAYS: dict[str, tuple[Callable[[S3], None], str]] = {
    "503": (lambda store: store.answer_503(on=True), "is overloaded or away (503)"),
    "expired credentials": (lambda store: store.be("expired"), "credentials for the object store"),
    "a clock of another time": (lambda store: store.be("skewed"), "the clock of this machine"),
    "an endpoint that never answers": (lambda store: store.be("silent"), "does not answer"),
}


def test_each_bad_day_is_said_within_a_minute_and_survived(
    store: S3, dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    # What nobody has to notice: versions, an upload that was never completed, 10,000 other names.
    store.keep_versions()
    store.begin_upload("checkpoint/offsets/0")
    put(tmp_path / "events", 0, [event("e0", "12:01", 1)])
    options = (*QUICK, *_options(store, f"{store.uri}/checkpoint"), "--max-restarts", "20")
    with job_process(tmp_path, dsn, *options, root=str(tmp_path)) as job:
        job.until(lambda: _events_of(job) == 1)
        store.fill("checkpoint/commits/of-another-time-", 10_000)
        for number, (name, (harm, said)) in enumerate(DAYS.items(), 1):
            before = len(job.said)
            harm(store)
            started = time.monotonic()
            put(tmp_path / "events", number, [event(f"e{number}", "12:01", 1 << number)])
            job.until(lambda before=before: "restart=" in job.said[before:])
            line = job.said[before:].partition("restart=")[2].partition("\n")[0]
            print(f"{name}: {time.monotonic() - started:.0f} s: {line}")
            assert time.monotonic() - started < SECONDS, (name, line)
            assert said in line, (name, line)
            store.be("")
            store.answer_503(on=False)
            job.until(lambda number=number: _events_of(job) == number + 1)
        put(tmp_path / "events", 8, [event("end", "12:40", 1)])
        job.until(lambda: _exposures(db))
        assert _exposures(db) == [((1 << len(DAYS) + 1) - 1,)]


def test_job_whose_bucket_is_gone_ends_within_a_minute(store: S3, dsn: str, tmp_path: Path) -> None:
    put(tmp_path / "events", 0, [event("e0", "12:01", 1)])
    options = (*QUICK, *_options(store, f"{store.uri}/checkpoint"))
    with job_process(tmp_path, dsn, *options, root=str(tmp_path)) as job:
        job.until(lambda: _events_of(job) == 1)
        store.remove_bucket()
        put(tmp_path / "events", 1, [event("e1", "12:02", 1)])
        started = time.monotonic()
        assert job.wait() == ExitCode.FAILED
        assert time.monotonic() - started < SECONDS
        assert "the bucket does not exist" in job.said
        assert "Nothing is lost" in job.said


def _events_of(job: JobProcess) -> int:
    """How many events the job has reported, each in a batch of its own, which may be repeated."""
    return len({line.split()[0] for line in job.said.splitlines() if " rows=1 " in line})


def _exposures(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    return db.execute(
        "SELECT exposure_minor FROM holdfast.exposure_window"
        " WHERE window_end <= '2024-11-04 12:15Z'"
    ).fetchall()


FILES_EACH = 13
"""Kills are further apart than on a disk: with fewer files some seeds end before their last one."""


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_beside_a_checkpoint_on_s3_change_no_row(
    store: S3, server_dsn: str, template_database: str, tmp_path: Path, seed: int
) -> None:
    def names(folder: str) -> list[str]:
        return store.names(f"checkpoint/{folder}")

    with (
        copy_of(server_dsn, template_database) as peace,
        copy_of(server_dsn, template_database) as attack,
    ):
        options = _options(store, f"{store.uri}/checkpoint")
        played = play(
            seed, tmp_path, peace, attack, 2, files=FILES_EACH, options=options, names=names
        )
    assert len(played.done) == 8
    assert played.attacked == played.peaceful
    assert played.published == played.required
    ledger = [batch_id for _, batch_id, *_ in played.attacked["batch"]]
    assert ledger == list(range(len(played.stream.files) + 1))


STARTS: dict[str, tuple[Callable[[S3], None], str]] = {
    "an endpoint that never answers": (lambda store: store.be("silent"), "does not answer"),
    "a bucket that does not exist": (lambda store: store.remove_bucket(), "bucket does not exist"),
    "expired credentials": (lambda store: store.be("expired"), "credentials for the object store"),
}


@pytest.mark.parametrize("day", STARTS)
def test_start_on_a_bad_day_names_it_within_a_minute(
    store: S3, dsn: str, db: psycopg.Connection, tmp_path: Path, day: str
) -> None:
    harm, said = STARTS[day]
    put(tmp_path / "events", 0, [event("e0", "12:00", 1)])
    before = store.asked
    harm(store)
    options = (*QUICK, *_options(store, f"{store.uri}/checkpoint"), "--max-restarts", "1")
    with job_process(tmp_path, dsn, *options, root=str(tmp_path)) as job:
        job.until(lambda: store.asked > before)
        started = time.monotonic()
        eventually(lambda: "restart=" in job.said or job.process.poll() is not None, 360)
        print(f"{day}: {time.monotonic() - started:.0f} s: {job.said.splitlines()[-1]}")
        assert time.monotonic() - started < SECONDS
        assert said in job.said
        if day == "an endpoint that never answers":
            store.be("")
            job.until(lambda: _events_of(job) == 1)
            return
        assert job.wait() == ExitCode.FAILED
        assert "restart=" not in job.said
    assert db.execute("SELECT name FROM holdfast.stream").fetchall() == []
