"""The log cannot be written: a full disk, a pipe that nobody reads, a reader that is gone.

Real: the commands in their own processes; /dev/full, the kernel's limit of a file, pipes.
"""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.deploy.local.ports import free_port
from holdfast.sink.contract.exits import ExitCode
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.sender import secret_text
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = [pytest.mark.rest, pytest.mark.faults]

LIVING = "SELECT count(*) FROM holdfast.dispatcher_instance"
DROPPED = "holdfast_log_lines_dropped_total"


@contextmanager
def _running(dsn: str, stderr: Any, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"HOLDFAST_DSN": dsn, SECRET: secret_text()}
    command = [sys.executable, "-m", "holdfast.dispatcher.cli.main", *arguments]
    process = subprocess.Popen(command, env=environment, stderr=stderr, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def port() -> int:
    return free_port()


def _metric(port: int, name: str) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    (line,) = (
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )
    return line


def test_full_disk_under_the_log_stops_no_delivery(world: World, port: int) -> None:
    world.endpoint()
    log = world.tmp_path / "log"
    with world.dispatch("log", "--listen", f"127.0.0.1:{port}") as running:
        world.decisions.write("m_0")
        running.until(lambda: running.lines("attempt"))
        process = psutil.Process(running.process.pid)
        # The next line is cut off in its middle.
        full = log.stat().st_size + 20
        process.rlimit(resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))
        for number in range(1, 6):
            world.decisions.write(f"m_{number}")
            running.until(lambda: len(world.receiver.seen) == number + 1)  # noqa: B023 - at once
        running.until(lambda: _metric(port, DROPPED) == 5)
        assert log.stat().st_size == full
        process.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        world.decisions.write("m_6")
        running.until(lambda: b"lines.dropped" in log.read_bytes())
        assert httpx.get(f"http://127.0.0.1:{port}/healthz/live").status_code == 200
        running.terminate()
        assert running.ends() == ExitCode.OK
    lines = log.read_text().splitlines()
    torn = [line for line in lines if not line.endswith("}")]
    assert len(torn) == 1
    complete = [json.loads(line) for line in lines if line not in torn]
    (report,) = (line for line in complete if line["what"] == "lines.dropped")
    assert (report["lines"], report["level"], report["error"]) == (5, "warning", "File too large")
    assert sum(line["what"] == "attempt" for line in complete) == 2
    assert world.value(LIVING) == 0


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_dispatcher_starts_on_a_full_disk(world: World, options: Sequence[str]) -> None:
    world.endpoint()
    world.decisions.write("m_1")
    with (
        open("/dev/full", "wb") as full,  # noqa: PTH123 - no path to a file
        _running(world.dsn, full, "dispatch", *options) as process,
    ):
        eventually(lambda: world.receiver.seen or process.poll() is not None)
        assert len(world.receiver.seen) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == ExitCode.OK
    assert world.value(LIVING) == 0


def test_log_that_nobody_reads_stops_no_delivery(world: World) -> None:
    world.endpoint()
    world.decisions.write("m_1")
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writer, b"-" * 4095 + b"\n")
    with os.fdopen(reader, "rb") as log, _running(world.dsn, writer, "dispatch") as process:
        os.close(writer)
        eventually(lambda: world.receiver.seen or process.poll() is not None)
        assert len(world.receiver.seen) == 1
        log.readline()
        world.decisions.write("m_2")
        assert json.loads(log.readline())["what"] == "lines.dropped"
        log.close()
        # The reader is gone: a broken pipe is no end either.
        world.decisions.write("m_3")
        eventually(lambda: len(world.receiver.seen) == 3 or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == ExitCode.OK
    assert world.value(LIVING) == 0


def test_api_server_starts_and_ends_on_a_full_disk(dsn: str, port: int) -> None:
    def answers() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz/live").status_code == 200
        except httpx.TransportError:
            return False

    with (
        open("/dev/full", "wb") as full,  # noqa: PTH123 - no path to a file
        _running(dsn, full, "api", "serve", "--port", str(port)) as process,
    ):
        eventually(lambda: answers() or process.poll() is not None)
        assert answers()
        process.send_signal(signal.SIGTERM)
        # uvicorn ends by the signal once it has shut down.
        assert process.wait(60) == -signal.SIGTERM


def test_error_that_cannot_be_shown_keeps_its_exit_code() -> None:
    with (
        open("/dev/full", "wb") as full,  # noqa: PTH123 - no path to a file
        _running("", full, "dispatch") as process,
    ):
        assert process.wait(60) == ExitCode.USAGE
