"""The cases, and how each is started."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

Kind = Literal["ours", "loop", "python", "node"]


@dataclass(frozen=True, slots=True)
class Case:
    """One way of delivering."""

    kind: Kind
    label: str
    program: str = ""
    """The peer's program; empty for ours."""
    option: str = ""
    """What the program is told; for ours, the engine (empty: the default one)."""
    ordered: bool = True
    """Whether it says that it keeps the order of a subject."""
    is_loop: bool = False
    """Whether it sends and does nothing else."""
    trickles: bool = True
    """Whether its latency is measured."""
    doorbell: bool = False
    processes: int = 1
    """Of ours."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of a peer, in the words of its program."""

    @property
    def queues(self) -> bool:
        """Whether it reads a queue at all."""
        return self.kind != "loop" and not self.is_loop


SWEPT: Final = Path(__file__).with_name("sweep.json")
"""What `python -m tests.benchmarks.dispatch.sweep` found: each peer's best settings."""


def _best(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(SWEPT.read_text())["cases"]
    return found[name]["best"] if name in found else {}


_ALL: Final = {
    "holdfast": Case("ours", "holdfast dispatch, default engine"),
    "holdfast_doorbell": Case("ours", "the same with --doorbell", doorbell=True),
    "holdfast_2": Case("ours", "the same with --processes 2", trickles=False, processes=2),
    "holdfast_4": Case("ours", "the same with --processes 4", trickles=False, processes=4),
    "holdfast_httpx": Case("ours", "holdfast dispatch --engine httpx", option="httpx"),
    "loop_asyncio": Case("loop", "bare loop, the asyncio engine", "bare_engine.py", "asyncio"),
    "loop_pyreqwest": Case("loop", "bare loop, pyreqwest", "bare_loop.py", "pyreqwest"),
    "loop_aiohttp": Case("loop", "bare loop, aiohttp", "bare_loop.py", "aiohttp"),
    "loop_httpx": Case("loop", "bare loop, httpx", "bare_loop.py", "httpx"),
    "loop_undici": Case("node", "bare loop, undici", "bare_loop.mjs", is_loop=True),
    "graphile_queues": Case("node", "graphile-worker, queue per subject", "graphile.mjs", "queue"),
    "pgboss_fifo": Case("node", "pg-boss, key_strict_fifo", "pgboss.mjs", "fifo"),
    "procrastinate_lock": Case(
        "python", "procrastinate, lock per subject", "procrastinate_peer.py", "lock"
    ),
    "graphile": Case("node", "graphile-worker", "graphile.mjs", ordered=False),
    "pgboss": Case("node", "pg-boss", "pgboss.mjs", ordered=False),
    "pgqueuer": Case("python", "pgqueuer", "pgqueuer_peer.py", ordered=False),
    "procrastinate": Case("python", "procrastinate", "procrastinate_peer.py", ordered=False),
    "naive_aiohttp": Case(
        "python", "SKIP LOCKED loop, aiohttp", "naive.py", "aiohttp", ordered=False
    ),
    "naive_httpx": Case(
        "python", "SKIP LOCKED loop, httpx", "naive.py", "httpx", ordered=False, trickles=False
    ),
}

CASES: Final = {name: replace(case, settings=_best(name)) for name, case in _ALL.items()}

ORDERED_PEERS: Final = ("graphile_queues", "pgboss_fifo", "procrastinate_lock")
UNORDERED_PEERS: Final = ("graphile", "pgboss", "pgqueuer", "procrastinate", "naive_aiohttp")

BARE_CLIENT: Final = {
    "asyncio": "loop_asyncio",
    "httpx": "loop_httpx",
}
"""The bare loop on the client of each engine."""

LIBRARY_CLIENTS: Final = ("loop_pyreqwest", "loop_aiohttp", "loop_httpx")
"""The bare loops on Python clients of others."""

SETTLED: Final = {
    "ours": (
        "SELECT NOT EXISTS (SELECT FROM holdfast.lane WHERE delivered_sequence < last_sequence)"
    ),
    "graphile.mjs": "SELECT NOT EXISTS (SELECT FROM graphile_worker._private_jobs)",
    "pgboss.mjs": "SELECT NOT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed')",
    "procrastinate_peer.py": (
        "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
    ),
    "pgqueuer_peer.py": "SELECT NOT EXISTS (SELECT FROM pgqueuer)",
    "naive.py": "SELECT NOT EXISTS (SELECT FROM outbox WHERE sent_at IS NULL)",
}
"""Whether nothing is left in the tables of ours or of a peer's program."""
