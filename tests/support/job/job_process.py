"""`holdfast job run` as a process of its own, in a process group that can be killed as a whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import psycopg

from holdfast.deploy.local.java import spark_environment
from tests.support.job.jobs import POLICY
from tests.support.waiting import eventually

SECONDS = 360
"""How long anything may take that involves starting Spark, on a busy machine."""


@dataclass(frozen=True)
class JobProcess:
    """A running job; `log` is where its stderr goes."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def stands(self) -> bool:
        """Whether the driver was stopped, as a failpoint does it."""
        return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED

    def resume(self) -> None:
        """Let a driver that stands go on."""
        self.process.send_signal(signal.SIGCONT)

    def wait(self) -> int:
        """Wait for the job to end by itself; returns its exit code."""
        return self.process.wait(SECONDS)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the job and to everything it started, as a terminal or a reboot does."""
        os.killpg(self.process.pid, number)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; fails as soon as the job has ended without it."""

        def met() -> object:
            ended = self.process.poll() is not None
            value = condition()
            assert value or not ended, self.said
            return value

        eventually(met, SECONDS)


def command(folder: Path, *options: str, root: str | None = None) -> list[str]:
    """The words after the name of the program; `events` and `checkpoint` are in `root`, or here."""
    root = root or str(folder)
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    return [
        "run",
        *("--source", "files"),
        *("--format", "json"),
        *("--path", f"{root}/events"),
        *("--checkpoint", f"{root}/checkpoint"),
        *("--stream", "payouts"),
        *("--policy", str(policy)),
        *("--max-files-per-trigger", "1"),
        *options,
    ]


QUICK = ("--key-groups", "4", "--trigger-interval", "100ms")
"""Options of a job that takes a few lines at a time."""

HOLDFAST = (sys.executable, "-m", "holdfast.dispatcher.cli.main", "job")


@contextmanager
def job_process(
    folder: Path,
    dsn: str,
    *options: str,
    program: tuple[str, ...] = HOLDFAST,
    environment: Mapping[str, str] | None = None,
    root: str | None = None,
) -> Iterator[JobProcess]:
    """Start the job over `events`; whatever is left of it at the end is killed."""
    words = [*program, *command(folder, *options, root=root)]
    with running(folder, dsn, words, environment) as job:
        yield job


@contextmanager
def running(
    folder: Path, dsn: str, words: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[JobProcess]:
    """Start a program; whatever is left of it at the end is killed."""
    log = folder / "stderr.txt"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            words,
            env={**os.environ, **spark_environment(), "HOLDFAST_DSN": dsn, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    job = JobProcess(process, log)
    try:
        yield job
    finally:
        if process.poll() is None:
            job.kill()
        process.communicate()


def check_stopped(job: JobProcess, name: str) -> None:
    """Check what a job said that ended because of the signal of this name."""
    _, stopping, then = job.said.partition(f"{name}: stopping")
    assert stopping, job.said
    # A start that came too late for Spark may have left its stack before.
    assert "Traceback" not in then, job.said
    assert job.process.stdout
    assert job.process.stdout.read() == b""


def check_ledger(db: psycopg.Connection, checkpoint: Path) -> None:
    """Check that Spark recorded exactly the batches that are written."""
    written = db.execute("SELECT batch_id FROM holdfast.batch ORDER BY 1").fetchall()
    commits = sorted(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*"))
    assert [(batch_id,) for batch_id in commits] == written
