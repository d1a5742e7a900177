"""The cases, and how each is started, monitored and stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

from tests.benchmarks.common.processes import processor_seconds
from tests.benchmarks.common.receiver import Receiver
from tests.benchmarks.common.trees import HERE, Missing, Tree
from tests.benchmarks.dispatch import installed
from tests.benchmarks.dispatch.jobs import SECRET, SECRET_NAME, point_endpoint
from tests.support.processes import end

SWEPT: Final = Path(__file__).with_name("sweep.json")
"""What `python -m tests.benchmarks.dispatch.sweep` found: each peer's best settings."""

OUR_LOOP: Final = "bare_engine.py"
"""A loop of our own client, in our own environment."""

STARTED: Final = '"dispatcher.started"'
START_S: Final = 60.0
STOP_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    """One way of delivering."""

    kind: Literal["ours", "python", "node"]
    label: str
    program: str = ""
    """The peer's program; empty for ours."""
    option: str = ""
    """What the program is told; for ours, the engine (empty: the default one)."""
    order: Literal["", "kept", "none"] = ""
    """Whether a queue says that it keeps the order of a subject; a loop has no queue to read."""
    trickles: bool = True
    """Whether its latency is measured."""
    doorbell: bool = True
    """Whether our dispatcher listens to it, and the decisions ring it."""
    processes: int = 1
    """Of ours."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of a peer, in the words of its program."""


def _best(name: str) -> Mapping[str, Any]:
    swept: Mapping[str, Any] = json.loads(SWEPT.read_text())["cases"]
    return swept[name]["best"] if name in swept else {}


_OURS: Final = Case("ours", "holdfast dispatch, default engine", order="kept")
_ALL: Final = {
    "holdfast": _OURS,
    "holdfast_polling": replace(_OURS, label="the same with --no-doorbell", doorbell=False),
    **{
        f"holdfast_{n}": replace(
            _OURS, label=f"the same with --processes {n}", trickles=False, processes=n
        )
        for n in (2, 4)
    },
    "holdfast_httpx": replace(_OURS, label="holdfast dispatch --engine httpx", option="httpx"),
    "loop_asyncio": Case("python", "bare loop, the asyncio engine", OUR_LOOP, "asyncio"),
    **{
        f"loop_{client}": Case("python", f"bare loop, {client}", "bare_loop.py", client)
        for client in ("pyreqwest", "aiohttp", "httpx")
    },
    "loop_undici": Case("node", "bare loop, undici", "bare_loop.mjs"),
    **{
        name: Case(kind, label, program, option, order)
        for name, kind, label, program, option, order in (
            (
                "graphile_queues",
                "node",
                "graphile-worker, queue per subject",
                "graphile.mjs",
                "queue",
                "kept",
            ),
            ("pgboss_fifo", "node", "pg-boss, key_strict_fifo", "pgboss.mjs", "fifo", "kept"),
            (
                "procrastinate_lock",
                "python",
                "procrastinate, lock per subject",
                "procrastinate_peer.py",
                "lock",
                "kept",
            ),
            ("graphile", "node", "graphile-worker", "graphile.mjs", "", "none"),
            ("pgboss", "node", "pg-boss", "pgboss.mjs", "", "none"),
            ("pgqueuer", "python", "pgqueuer", "pgqueuer_peer.py", "", "none"),
            ("procrastinate", "python", "procrastinate", "procrastinate_peer.py", "", "none"),
            ("naive_aiohttp", "python", "SKIP LOCKED loop, aiohttp", "naive.py", "aiohttp", "none"),
        )
    },
    "naive_httpx": Case("python", "SKIP LOCKED loop, httpx", "naive.py", "httpx", "none", False),
}
CASES: Final = {name: replace(case, settings=_best(name)) for name, case in _ALL.items()}

ORDERED_PEERS: Final = tuple(n for n, c in CASES.items() if c.order == "kept" and c.program)
UNORDERED_PEERS: Final = tuple(n for n, c in CASES.items() if c.order == "none")
LIBRARY_CLIENTS: Final = ("loop_pyreqwest", "loop_aiohttp", "loop_httpx")
"""The bare loops on Python clients of others."""

SETTLED: Final = {
    "": "SELECT NOT EXISTS (SELECT FROM holdfast.lane WHERE delivered_sequence < last_sequence)",
    "graphile.mjs": "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)",
    "pgboss.mjs": "SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed')",
    "procrastinate_peer.py": (
        "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
    ),
    "pgqueuer_peer.py": "SELECT NOT EXISTS (SELECT FROM pgqueuer)",
    "naive.py": "SELECT NOT EXISTS (SELECT FROM outbox WHERE sent_at IS NULL)",
}
"""Whether nothing is left in the tables of ours or of a peer's program."""


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
def working(
    case: Case, dsn: str, to: Receiver, connections: int, folder: Path, tree: Tree = HERE
) -> Iterator[Work]:
    """Run what delivers; it is ended when the block ends, ours by SIGTERM so that it settles."""
    cwd = tree.folder
    if case.program:
        words = [*command(case), "work"]
        variables, cwd = peers(case, dsn, folder / "jobs.jsonl", connections, 1, to.url), HERE.root
    else:
        # The first of several processes must not begin before the others can.
        point_endpoint(dsn, to.url, "active" if case.processes == 1 else "paused")
        words = _dispatcher(case, connections, tree)
        variables = tree.environment | {"HOLDFAST_DSN": dsn, SECRET_NAME: SECRET}
    environment = {**os.environ, **variables}
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            words, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            _await_ready(case, process, folder / "log", Missing if tree.names else RuntimeError)
            if case.processes > 1:
                point_endpoint(dsn, to.url)
                process.send_signal(signal.SIGHUP)
            yield Work(process, time.monotonic(), processor_seconds(process.pid))
        finally:
            end(process, STOP_S, signal.SIGKILL if case.program else signal.SIGTERM)


def command(case: Case) -> list[str]:
    """Return what starts a peer's program; raises `Missing` when it cannot be installed."""
    if case.kind == "node":
        node, folder = installed.node()
        return [str(node), str(folder / case.program)]
    interpreter = sys.executable if case.program == OUR_LOOP else str(installed.python())
    return [interpreter, str(installed.HERE / case.program)]


def peers(
    case: Case, dsn: str, jobs: Path, connections: int, transaction: int, url: str = ""
) -> dict[str, str]:
    """Return the environment of a peer."""
    return {
        "BENCH_DSN": _uri(dsn),
        "BENCH_URL": url or "http://127.0.0.1:1/webhooks",
        "BENCH_JOBS": str(jobs),
        "BENCH_CONNECTIONS": str(connections),
        "BENCH_TRANSACTION": str(transaction),
        "BENCH_OPTION": case.option,
        "BENCH_SETTINGS": json.dumps(dict(case.settings)),
        "BENCH_SECRET": SECRET,
    }


def _dispatcher(case: Case, connections: int, tree: Tree) -> list[str]:
    options = ["--no-doorbell"] * (not case.doorbell) + ["--engine", case.option] * bool(
        case.option
    )
    if case.processes > 1:
        options += ["--processes", str(case.processes)]
    return tree.command("dispatch", "--concurrency", str(connections), *options)


def _uri(dsn: str) -> str:
    """Return `dsn` as a URI, which is the one form that every driver reads."""
    parts = {name: quote(str(value), safe="") for name, value in conninfo_to_dict(dsn).items()}
    password = f":{parts['password']}" if "password" in parts else ""
    where = f"{parts.get('host', '127.0.0.1')}:{parts.get('port', '5432')}"
    return f"postgresql://{parts.get('user', '')}{password}@{where}/{parts['dbname']}"


def _await_ready(
    case: Case, process: subprocess.Popen[str], log: Path, error: type[Exception]
) -> None:
    if case.program:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise error(f"{case.label} did not start: {log.read_text()[-2000:]}")
        return
    end = time.monotonic() + START_S
    while log.read_text().count(STARTED) < case.processes:
        if process.poll() is not None or time.monotonic() > end:
            raise error(f"{case.label} did not start: {log.read_text()[-2000:]}")
        time.sleep(0.005)
