"""The processes of one run: the receiver and the sender, started, monitored and stopped."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.benchmarks.common import counting_receiver
from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.runs import Missing
from tests.benchmarks.dispatch.cases import Case
from tests.benchmarks.dispatch.jobs import SECRET, SECRET_NAME
from tests.benchmarks.dispatch.peers_installed import command, python

STARTED = '"dispatcher.started"'
LOOK_S = 0.005
START_S = 60.0
STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """The counting receiver of a run."""

    port: int

    @property
    def url(self) -> str:
        """Where webhooks go."""
        return f"http://127.0.0.1:{self.port}/webhooks"

    def figures(self) -> dict[str, Any]:
        """What it has counted so far."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", "/")
            figures: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return figures


@dataclass(frozen=True, slots=True)
class Work:
    """Something that delivers, from the moment at which it was ready."""

    process: subprocess.Popen[str]
    began_s: float
    """By this machine's monotonic clock, which the receiver reads as well."""
    processor_s: float
    """What it had used by then."""

    def used_s(self) -> float:
        """Processor seconds since it was ready."""
        return processor_seconds(self.process.pid) - self.processor_s


@contextmanager
def receiver(*options: str) -> Iterator[Receiver]:
    """Run a receiver; it is gone when the block ends."""
    words = [str(python()), counting_receiver.__file__, *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or not (line := process.stdout.readline()):
            raise RuntimeError("the receiver did not start")
        yield Receiver(int(line))
    finally:
        process.kill()
        process.wait()


@contextmanager
def working(case: Case, dsn: str, to: Receiver, connections: int, folder: Path) -> Iterator[Work]:
    """Run what delivers; it is ended when the block ends, ours by SIGTERM so that it settles."""
    if case.kind == "ours":
        # The first of several processes must not begin before the others can.
        point_endpoint(dsn, to.url, "active" if case.processes == 1 else "paused")
        words, variables = dispatcher_command(case, connections), ours(dsn)
    else:
        words = [*command(case), "work"]
        variables = peers(case, dsn, folder / "jobs.jsonl", connections, 1, to.url)
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            words, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            _await_ready(case, process, folder / "log")
            if case.processes > 1:
                point_endpoint(dsn, to.url)
                process.send_signal(signal.SIGHUP)
            yield Work(process, time.monotonic(), processor_seconds(process.pid))
        finally:
            _end(process, signal.SIGTERM if case.kind == "ours" else signal.SIGKILL)


def dispatcher_command(case: Case, connections: int) -> list[str]:
    """Return the dispatcher's command; raises `Missing` for an option that it does not have."""
    words = [sys.executable, "-m", "holdfast.dispatcher.cli.main", "dispatch"]
    wanted = ["--doorbell"] * case.doorbell + ["--engine", case.option] * bool(case.option)
    if case.processes > 1:
        wanted += ["--processes", str(case.processes)]
    if wanted:
        shown = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "200"}
        told = subprocess.run(
            [*words, "--help"], capture_output=True, text=True, check=True, env=shown
        ).stdout
        for option in (word for word in wanted if word.startswith("--")):
            if option not in told:
                raise Missing(f"this dispatcher has no {option}")
    return [*words, "--concurrency", str(connections), *wanted]


def ours(dsn: str) -> dict[str, str]:
    """Return the environment of our dispatcher."""
    return {"HOLDFAST_DSN": dsn, SECRET_NAME: SECRET}


def peers(
    case: Case, dsn: str, jobs: Path, connections: int, transaction: int, url: str = ""
) -> dict[str, str]:
    """Return the environment of a peer."""
    return {
        "BENCH_DSN": uri(dsn),
        "BENCH_URL": url or "http://127.0.0.1:1/webhooks",
        "BENCH_JOBS": str(jobs),
        "BENCH_CONNECTIONS": str(connections),
        "BENCH_TRANSACTION": str(transaction),
        "BENCH_OPTION": case.option,
        "BENCH_SETTINGS": json.dumps(dict(case.settings)),
        "BENCH_SECRET": SECRET,
    }


def point_endpoint(dsn: str, url: str, state: str = "active") -> None:
    """Let our endpoint be this receiver."""
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("UPDATE holdfast.endpoint SET url = %s, state = %s", [url, state])


def uri(dsn: str) -> str:
    """Return `dsn` as a URI, which is the one form that every driver reads."""
    parts = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    password = f":{parts['password']}" if "password" in parts else ""
    where = f"{parts.get('host', '127.0.0.1')}:{parts.get('port', '5432')}"
    return f"postgresql://{parts.get('user', '')}{password}@{where}/{parts['dbname']}"


def _await_ready(case: Case, process: subprocess.Popen[str], log: Path) -> None:
    if case.kind != "ours":
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{case.label} did not start: {log.read_text()[-2000:]}")
        return
    end = time.monotonic() + START_S
    while log.read_text().count(STARTED) < case.processes:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{case.label} did not start: {log.read_text()[-2000:]}")
        time.sleep(LOOK_S)


def _end(process: subprocess.Popen[str], number: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(number)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
