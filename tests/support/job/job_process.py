"""`holdfast job run` as a process of its own, in a process group that can be killed as a whole."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED
        return False

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


MARK = "HOLDFAST_TEST_FAMILY"
_IDLE_CONNECTIONS = 1
"""A Python worker has one to the JVM; inside the stateful stage it has another, for the state."""


@dataclass(frozen=True)
class Family(JobProcess):
    """A job's processes; `process` is its driver."""

    mark: str

    @property
    def ended(self) -> bool:
        """Whether the driver has."""
        return self.process.poll() is not None

    def jvm(self) -> psutil.Process | None:
        """Spark, unless it is not there yet or not any more."""
        return next(
            (
                each
                for each, words in self._members()
                if words[0].endswith("java")
                and "org.apache.spark.deploy.SparkSubmit" in words
                and _parent(each) == self.process.pid
            ),
            None,
        )

    def workers(self) -> list[psutil.Process]:
        """The Python processes that run the tasks: children of a daemon, which is no worker."""
        python = {each.pid: each for each, words in self._members() if "pyspark.daemon" in words}
        return [each for pid, each in sorted(python.items()) if _parent(each) in python]

    def left(self) -> list[psutil.Process]:
        """Every process of the job that has not ended."""
        return [each for each, _ in self._members()]

    def end(self) -> None:
        """Kill whatever is left, one by one."""
        for each in self.left():
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.process.wait(SECONDS)
        eventually(lambda: not self.left())

    def _members(self) -> Iterator[tuple[psutil.Process, list[str]]]:
        for each in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                words = each.cmdline()
                if words and each.environ().get(MARK) == self.mark:
                    yield each, words


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return process.ppid()
    return -1


def in_the_step(worker: psutil.Process) -> bool:
    """Whether a worker is at work on the state."""
    with suppress(psutil.NoSuchProcess):
        return len(worker.net_connections()) > _IDLE_CONNECTIONS
    return False


def freeze(process: psutil.Process) -> None:
    """Stop a process and return when the last of its threads stands; Linux alone tells."""
    process.suspend()
    threads = Path("/proc", str(process.pid), "task")

    def stands() -> bool:
        # The state comes after the name, in which anything may be.
        stats = [each.read_text() for each in threads.glob("*/stat")]
        return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)

    eventually(stands)


def was_answered(jvm: psutil.Process, driver: psutil.Process) -> bool:
    """Whether a frozen JVM will find, when it goes on, an answer of the driver to its call."""
    ends = {each.laddr.port for each in driver.net_connections() if each.status == "LISTEN"}
    calls = {each.laddr.port for each in jvm.net_connections() if each.raddr}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            near, far = (int(address.rpartition(":")[2], 16) for address in (local, remote))
            if near in calls and far in ends and int(queues.rpartition(":")[2], 16):
                return True
    return False


def kill_if(process: psutil.Process, condition: Callable[[psutil.Process], bool]) -> bool:
    """Kill a process if the condition still holds while the process cannot move."""
    with suppress(psutil.NoSuchProcess):
        process.suspend()
        if condition(process):
            process.kill()
            return True
        process.resume()
    return False


@contextmanager
def family(
    folder: Path, dsn: str, *options: str, log: str, environment: Mapping[str, str]
) -> Iterator[Family]:
    """Start `holdfast job run` on the files of a folder; nothing of it is left afterwards."""
    mark = secrets.token_hex(8)
    settings = {**os.environ, **spark_environment(), "HOLDFAST_DSN": dsn, MARK: mark}
    with (folder / log).open("wb") as stderr:
        driver = subprocess.Popen(
            [*HOLDFAST, *command(folder, *options)],
            env=settings | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
    started = Family(driver, folder / log, mark)
    try:
        yield started
    finally:
        started.end()
