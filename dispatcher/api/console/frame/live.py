"""What browsers are told every two seconds, so that they ask again for what they show.

It is a fingerprint: pages come over their own addresses, with their rights. One look at the
database answers everybody who asks within a tick.
"""

import hashlib
import json
from collections.abc import Callable
from threading import Lock
from typing import Any

from fastapi import FastAPI

from dispatcher.operators.common.pool import OperatorPool
from dispatcher.operators.overview.store import Overview
from dispatcher.operators.replays.store import Replays
from dispatcher.shared.clock import seconds
from dispatcher.shared.errors import StoreUnavailableError
from sink.contract.exits import CommandError
from sink.contract.states import ReplayState

TICK_SECONDS = 2.0
REPLAYS_LOOKED_AT = 20
DIGITS = 16

ACTOR = "console"
AWAY = "away"
"""The fingerprint of a database that cannot be asked."""


class Live:
    """The newest fingerprint."""

    def __init__(self, pool: OperatorPool, clock: Callable[[], float] = seconds) -> None:
        self._pool = pool
        self._clock = clock
        self._seen = ""
        self._until = -float("inf")
        self._looking = Lock()

    def now(self) -> str:
        """Return a fingerprint of at most a tick ago; while somebody looks, the one before.

        Empty before the first look, which browsers take for no event."""
        if self._clock() >= self._until and self._looking.acquire(blocking=False):
            try:
                self._seen = self._look()
                self._until = self._clock() + TICK_SECONDS
            finally:
                self._looking.release()
        return self._seen

    def _look(self) -> str:
        try:
            with self._pool.lend(Overview, ACTOR) as store:
                now = store.overview(1)
            with self._pool.lend(Replays, ACTOR) as replays:
                rows = replays.list(limit=REPLAYS_LOOKED_AT)
                under_way = [
                    replays.status(row["id"])["progress"]
                    for row in rows
                    if row["state"] == ReplayState.APPLYING
                ]
        except (StoreUnavailableError, CommandError):
            return AWAY
        return digest([*_delivery(now), [[row["id"], row["state"]] for row in rows], under_way])


def _delivery(now: dict[str, Any]) -> list[Any]:
    names = ("name", "state", "breaker", "due_lanes", "leased_lanes")
    return [
        now["totals"],
        now["series"][-1]["minute"],
        [[each["batch_no"], each["routed_at"]] for each in now["batches"]],
        [[each[name] for name in names] for each in now["endpoints"]],
        [[each["kind"], each["count"]] for each in now["needs"]],
        now["dispatchers_alive"],
        now["unrouted_batches"],
    ]


def digest(seen: Any) -> str:
    """Return a short fingerprint of values."""
    return hashlib.sha256(json.dumps(seen, default=str).encode()).hexdigest()[:DIGITS]


def live_of(app: FastAPI) -> Live:
    """Return the one of this application; `install` made it."""
    live: Live = app.state.live
    return live


def install(app: FastAPI) -> None:
    """Make the one of this application."""
    app.state.live = Live(app.state.pool)
