"""`holdfast local stack up`: the whole system as processes, and nothing of it afterwards.

Real: every process, Postgres, Spark, the ports; Prometheus and its page where one is found. Events
come as files; `make test-stack` runs the whole with a topic.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast.deploy.local.ports import free_port
from holdfast.deploy.local.stack.panels import dashboards
from holdfast.deploy.local.stack.run import DATABASES
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.servers.databases import processes_on
from tests.support.waiting import eventually

PORTS = (
    *("PAYOUTS_PORT", "KAFKA_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT"),
    *("API_PORT", "JOB_METRICS_PORT"),
)

NOT_GIVEN = {"HOLDFAST_DSN", "PYTHONUNBUFFERED"}
"""The second would hide that something waits in a buffer."""


def free_ports() -> dict[str, str]:
    free: set[int] = set()
    while len(free) < len(PORTS) + 2:
        free.add(free_port())
    one, two, *others = map(str, sorted(free))
    return dict(zip(PORTS, others, strict=True)) | {"DISPATCHER_METRICS_PORTS": f"{one},{two}"}


@contextmanager
def stack(folder: Path, ports: Mapping[str, str], source: str) -> Iterator[subprocess.Popen[str]]:
    words = ["local", "stack", "up", "--directory", str(folder), "--input", source, "--json"]
    with (folder.parent / "log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.dispatcher.cli.main", *words],
            env={name: v for name, v in os.environ.items() if name not in NOT_GIVEN} | ports,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(timeout=120)
            assert process.stdout
            process.stdout.close()


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the JSON, which ends with a brace alone on its line."""
    assert process.stdout
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.rstrip() == "}":
            break
    document: dict[str, Any] = json.loads("".join(lines))
    return document


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        # An orphan stays a zombie until init collects it, which not every container has.
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _every_dashboard_is_drawn(page: str) -> None:
    text = httpx.get(page, timeout=60).text
    for each in dashboards():
        assert f'src="/{each.name}.svg"' in text
        eventually(lambda url=f"{page}/{each.name}.svg": "<polyline" in httpx.get(url).text)


def _newest(events: Path) -> timedelta:
    """The age of the newest event, of those that are not dated ahead."""
    now = datetime.now(UTC)
    ages = [
        now - datetime.fromisoformat(moment)
        for file in events.glob("[!.]*.jsonl")  # others have no name yet
        for moment in re.findall(r'"occurred_at":"(\d[^"]+Z)"', file.read_text())
    ]
    return min((age for age in ages if age >= timedelta()), default=timedelta.max)


@pytest.mark.long
def test_stack_decides_delivers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with stack(tmp_path / "stack", free_ports(), "files") as process:
        started = read(process)
        parts = {part["name"]: part["address"] for part in started["parts"]}
        assert {"payouts", "dispatcher 1", "dispatcher 2", "console and API", "job"} <= set(parts)
        for name in ("dispatcher 1", "dispatcher 2", "job", "payouts"):
            assert "holdfast_" in httpx.get(f"{parts[name]}/metrics").text, name
        response = httpx.get(
            f"{parts['console and API']}/api/v1/overview",
            headers={"Authorization": f"Bearer {started['token']}"},
        )
        assert response.status_code == httpx.codes.OK
        with psycopg.connect(
            make_conninfo(started["dsn"], dbname=DATABASES[1]), autocommit=True
        ) as db:
            counted = "SELECT count(*) FROM payouts.hold_history"
            eventually(lambda: (db.execute(counted).fetchone() or (0,))[0] > 0, 120)
        eventually(lambda: _newest(tmp_path / "stack" / "events") < timedelta(minutes=1), 180)
        if "dashboards" in parts:
            _every_dashboard_is_drawn(parts["dashboards"])
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= len(parts)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 128 + signal.SIGINT
        assert [each for each in family if _lives(each)] == []


@pytest.mark.long
def test_killed_stack_is_ended_by_local_down(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    with stack(folder, free_ports(), "files") as process:
        eventually((folder / "logs" / "job.log").exists, 120)
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        assert [each for each in family if _lives(each)] != []
        down = ("local", "down", "--directory", str(folder))
        done = holdfast(*down, process=True)
        assert done.returncode == ExitCode.OK, done.stderr
        assert [each for each in family if _lives(each)] == []
        assert processes_on(folder / "postgres") == []
        assert holdfast(*down, process=True).returncode == ExitCode.NOTHING_MATCHED


def test_start_ends_what_a_killed_stack_left(tmp_path: Path) -> None:
    folder = tmp_path / "stack"
    mark = {"STACK_DIRECTORY": str(folder)}
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        subprocess.Popen(sleeps, env={**os.environ, **mark}) as left,
    ):
        ports = free_ports() | {"API_PORT": str(listener.getsockname()[1])}
        try:
            words = ("local", "stack", "up", "--directory", str(folder))
            assert holdfast(*words, environment=ports).returncode == ExitCode.USAGE
            assert left.wait(60) == -signal.SIGTERM
        finally:
            left.kill()


def test_taken_port_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        ports = free_ports() | {"API_PORT": port}
        done = holdfast(
            *("local", "stack", "up", "--directory", str(tmp_path / "stack")), environment=ports
        )
        assert done.returncode == ExitCode.USAGE
        assert port in done.stderr
        wrong = holdfast("local", "stack", "up", environment={"API_PORT": "eighty"})
        assert wrong.returncode == ExitCode.USAGE
    assert not (tmp_path / "stack" / "postgres").exists()
