"""Dispatchers under the random faults of one seed: `python -m tests.soak.dispatch SEED`.

Two dispatchers, one on each engine, deliver while decisions are written, an operator pauses and
resumes, processes are killed or stand still, and proxies before the receiver and before Postgres
do what lines can do. Then everything heals, what is left is delivered, and the invariants are
checked. Needs HOLDFAST_TEST_DSN, or it starts a server. Logs of a round that went wrong stay in
.holdfast/soak.
"""

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event

import psutil
import psycopg

from holdfast.dispatcher.delivery.telemetry.log import configure
from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.migrations.upgrade import upgrade
from tests.soak.job import _server
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import SECRET, Process
from tests.support.dispatch.sender import secret_text
from tests.support.job.decisions import Decisions
from tests.support.servers import fault_proxy as faults
from tests.support.servers.databases import copy_of
from tests.support.servers.fault_proxy import FaultProxy, Way
from tests.support.world import LEASE_SECONDS, World

FOLDER = Path(".holdfast/soak")
SECONDS = float(os.environ.get("SOAK_DISPATCH_SECONDS", "60"))
"""How long faults happen; healing comes on top."""

SUBJECTS = [f"m_{n}" for n in range(40)]
RSS_MAX = 300 * 2**20
ENGINES = ("httpx", "asyncio")

BEFORE_RECEIVER = (
    faults.delay(0.05, 0.3),
    faults.throttle(20_000),
    faults.half_open,
    faults.mute(Way.UP),
    faults.mute(Way.DOWN),
    faults.truncate(Way.UP, 300, reset=True),
    faults.truncate(Way.DOWN, 5),
    faults.truncate(Way.DOWN, 0, reset=True),
    faults.corrupt(Way.DOWN, 0.2),
)
BEFORE_POSTGRES = (faults.delay(0.01, 0.05), faults.half_open, faults.mute(Way.DOWN))


class Soak:
    """One round; `draw` decides everything that is random in it."""

    def __init__(self, world: World, hooks: FaultProxy, base: FaultProxy, seed: int) -> None:
        self._world = world
        self._hooks = hooks
        self._base = base
        self._draw = random.Random(seed)  # noqa: S311 - faults, not secrets
        self._running: dict[str, tuple[ExitStack, Process]] = {}
        self._starts = 0
        self.done: list[str] = []
        self.rss_max = 0

    def attack(self) -> None:
        """Let things happen until the time is over."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for engine in ENGINES:
                self._keep_running(engine)
            self._world.decisions.write(*self._draw.choices(SUBJECTS, k=60))
            name = self._draw.choice(("_kill", "_stand", "_bend", "_cut", "_lose", "_pause"))
            self.done.append(name.strip("_"))
            getattr(self, name)()
            Event().wait(self._draw.random())
            self._look()

    def heal(self) -> None:
        """Let every line be honest, end both dispatchers, deliver the rest, check all of it."""
        self._hooks.heal()
        self._base.heal()
        for stack, process in self._running.values():
            process.go_on()
            process.terminate()
            process.ends()
            stack.close()
        self._world.heal()

    def _keep_running(self, engine: str) -> None:
        running = self._running.get(engine)
        if running is not None and running[1].process.poll() is None:
            return
        if running is not None:
            running[0].close()
        self._starts += 1
        stack = ExitStack()
        process = stack.enter_context(
            self._world.dispatch(
                f"{self._starts}-{engine}.log",
                *("--lease-seconds", str(LEASE_SECONDS), "--stop-seconds", "2"),
                dsn=self._base.dsn_of(self._world.dsn),
                engine="httpx" if engine == "httpx" else "asyncio",
            )
        )
        self._running[engine] = stack, process

    def _victim(self) -> Process:
        return self._running[self._draw.choice(ENGINES)][1]

    def _kill(self) -> None:
        self._victim().send(signal.SIGKILL)

    def _stand(self) -> None:
        victim = self._victim()
        with suppress(ProcessLookupError):
            victim.send(signal.SIGSTOP)
            Event().wait(self._draw.uniform(0.5, 2 * LEASE_SECONDS))
            victim.go_on()

    def _bend(self) -> None:
        self._hooks.bend(self._draw.choice(BEFORE_RECEIVER))
        Event().wait(self._draw.uniform(0.2, 2.0))
        self._hooks.heal()

    def _cut(self) -> None:
        proxy = self._draw.choice((self._hooks, self._base))
        if self._draw.random() < 0.5:
            proxy.cut()
            return
        proxy.refuse()
        Event().wait(self._draw.uniform(0.2, 2.0))
        proxy.heal()

    def _lose(self) -> None:
        struck = Event()
        lose = faults.lose_answer(b"COMMIT\x00", struck, after=b"COPY holdfast.attempt")
        self._base.bend(self._draw.choice((*BEFORE_POSTGRES, lose)))
        struck.wait(self._draw.uniform(0.5, 2.0))
        self._base.heal()

    def _pause(self) -> None:
        with Endpoints.connect(self._world.dsn) as store:
            store.set_endpoint_state("payouts", "paused", "soak")
            Event().wait(self._draw.random())
            store.set_endpoint_state("payouts", "active", "soak")

    def _look(self) -> None:
        for _, process in self._running.values():
            with suppress(psutil.NoSuchProcess):
                rss = psutil.Process(process.process.pid).memory_info().rss
                self.rss_max = max(self.rss_max, rss)


@contextmanager
def _world(folder: Path) -> Iterator[World]:
    with _server(folder) as at, copy_of(at, "template1") as dsn, webhooks.listening() as receiver:
        upgrade(dsn)
        with psycopg.connect(dsn, autocommit=True) as db, Decisions(dsn) as decisions:
            yield World(
                None, dsn=dsn, db=db, decisions=decisions, receiver=receiver, tmp_path=folder
            )


def main(seed: int) -> int:
    """Play one round; returns 0 when nothing was lost, repeated beyond bounds or out of order."""
    os.environ[SECRET] = secret_text()
    folder = (FOLDER / f"dispatch-{seed}").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (
        (folder / "healing.log").open("w") as log,
        _world(folder) as world,
        FaultProxy.before_port(world.receiver.port, seed) as hooks,
        FaultProxy.before_postgres(world.dsn, seed) as base,
    ):
        configure(log)
        url = f"http://127.0.0.1:{hooks.port}/payouts"
        world.endpoint(url, schedule_seconds=[0, 1] * 50, order_policy="skip")
        soak = Soak(world, hooks, base, seed)
        try:
            soak.attack()
            soak.heal()
            assert soak.rss_max < RSS_MAX, f"{soak.rss_max >> 20} MiB"
        except AssertionError as error:
            print(f"seed {seed}: {error}; see {folder}")
            return 1
        arrived = len(world.receiver.seen)
        print(
            f"seed {seed}: {len(soak.done)} faults, {arrived} arrivals, {world.unknown()} unknown,"
            f" no loss, no inversion; at most {soak.rss_max >> 20} MiB"
        )
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
