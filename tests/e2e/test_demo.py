"""The demo as a newcomer runs it: one command, without Java and Postgres on the PATH."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

MARK = "HOLDFAST_DEMO_TEST"
HIDDEN = ("java", "javac", "postgres", "pg_", "psql", "initdb")
END_SECONDS = 240.0
KEYS = {
    "events",
    "decisions",
    "entries",
    "webhooks_sent",
    "actions_applied",
    "actions_lost",
    "actions_repeated",
    "out_of_order",
    "duplicates_absorbed",
    "unknown_outcomes",
    "spark_kills",
    "dispatcher_kills",
    "seconds",
}

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def bare_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with the machine's usual programs, and neither Java nor Postgres among them."""
    folder = tmp_path_factory.mktemp("bin")
    for source in ("/usr/bin", "/bin"):
        for program in Path(source).iterdir():
            link = folder / program.name
            if not program.name.startswith(HIDDEN) and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "demo"


@pytest.fixture
def mark() -> str:
    """A value that every process of this test's demo inherits in its environment."""
    return secrets.token_hex(16)


@pytest.fixture
def start(bare_path: str, directory: Path, mark: str) -> Iterator[Start]:
    """Start a demo; whatever is left of it is killed after the test."""
    hidden = {"HOLDFAST_DSN", "JAVA_HOME", "SPARK_HOME", "PYTHONPATH"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden}
    environment |= {"PATH": bare_path, MARK: mark}

    def begin(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "holdfast.dispatcher.cli.main", "demo"]
        return subprocess.Popen(
            [*command, *options, "--directory", str(directory)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    yield begin
    for process in processes_of(mark, directory):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def processes_of(mark: str, directory: Path) -> list[psutil.Process]:
    """Find what belongs to a demo: by environment, or (Postgres has none) by its data directory."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marked = process.environ().get(MARK) == mark
            if marked or any(str(directory) in word for word in process.cmdline()):
                processes.append(process)
    return [process for process in processes if process.pid != os.getpid()]


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)


@pytest.mark.guarantee(1, 5, 10)
@pytest.mark.faults
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_demo_loses_and_repeats_nothing_though_both_halves_are_killed(
    start: Start, directory: Path, mark: str
) -> None:
    demo = start()
    output, _ = demo.communicate(timeout=800)
    assert demo.returncode == 0, output
    last = output.splitlines()[-1]
    assert last == str(directory / "report.json")

    report = json.loads(Path(last).read_text())
    assert report.keys() >= KEYS
    assert report["actions_lost"] == report["actions_repeated"] == report["out_of_order"] == 0
    assert report["actions_altered"] == 0
    assert report["spark_kills"] == report["dispatcher_kills"] == 1
    assert report["decisions"] == report["entries"] == report["actions_applied"] >= 150
    assert report["events"] > 20_000
    assert report["quarantined"] == report["quarantined_expected"] > 0
    assert report["held_at_the_end"] == 0
    # The killed dispatcher's deliveries came twice, and no more often than outcomes were unknown.
    assert 1 <= report["duplicates_absorbed"] <= report["unknown_outcomes"]
    assert report["seconds"] > 0
    assert [
        (c["action"], c["window_end"][11:16], c["exposure_minor"]) for c in report["story"]
    ] == [("block", "12:15", 8_500_000), ("release", "12:30", 2_200_000)]

    assert processes_of(mark, directory) == []
    assert (directory / "secrets" / "webhook").stat().st_mode & 0o777 == 0o600
    secret = (directory / "secrets" / "webhook").read_text().strip()
    logs = "".join(log.read_text() for log in (directory / "logs").iterdir())
    assert secret not in output + logs


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_same_kills_repeat_actions_without_an_outbox(
    start: Start, directory: Path, mark: str
) -> None:
    demo = start("without", "--events", "6000")
    output, _ = demo.communicate(timeout=800)
    assert demo.returncode == 0, output

    report = json.loads((directory / "report.json").read_text())
    assert report["spark_kills"] == 2
    assert report["actions_repeated"] > 0
    assert report["actions_lost"] == 0
    assert report["requests"] == report["decisions"] + report["actions_repeated"]
    assert processes_of(mark, directory) == []


@pytest.mark.rest
@pytest.mark.faults
@pytest.mark.spark
def test_interrupted_demo_leaves_no_process_behind(
    start: Start, directory: Path, mark: str
) -> None:
    demo = start()

    def workers_run() -> bool:
        # Spark's Python workers come last, and they leave the process group of their driver.
        return any("pyspark.daemon" in command(p) for p in processes_of(mark, directory))

    wait_for(workers_run, demo)
    demo.send_signal(signal.SIGINT)
    output, _ = demo.communicate(timeout=END_SECONDS)
    assert demo.returncode == 130, output
    assert "Traceback" not in output
    assert processes_of(mark, directory) == []
