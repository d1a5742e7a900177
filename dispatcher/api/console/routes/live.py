"""Live pages: a fingerprint of what they show, one server-sent event for each request.

A page that gets another fingerprint loads itself again, over its own address and with its own
rights. The browser repeats the request every two seconds (`retry`). No stream stays open, so none
has to be bounded, ended with its login, or waited for when the server stops.
"""

import hashlib
import json
from collections.abc import Callable
from threading import Lock
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response

from holdfast.dispatcher.api.console.frame.guard import LoginNeededError, person
from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.overview.store import Overview
from holdfast.dispatcher.operators.replays.store import Replays
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.sink.contract.exits import CommandError
from holdfast.sink.contract.states import ReplayState

TICK_SECONDS = 2.0

REPLAYS_LOOKED_AT = 20

DIGITS = 16

ACTOR = "console"

AWAY = "away"
"""The fingerprint while the database is unavailable."""


class Live:
    """The newest fingerprint, cached for a tick."""

    def __init__(self, pool: OperatorPool, clock: Callable[[], float] = seconds) -> None:
        self._pool = pool
        self._clock = clock
        self._seen = ""
        self._until = -float("inf")
        self._looking = Lock()

    def now(self) -> str:
        """Return a fingerprint at most one tick old; while another request reads, the previous one.

        Empty before the first read, which browsers ignore.
        """
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
    """Return a short hash of values."""
    return hashlib.sha256(json.dumps(seen, default=str).encode()).hexdigest()[:DIGITS]


def live_of(app: FastAPI) -> Live:
    """Return the application's fingerprint cache, which `install` created."""
    live: Live = app.state.live
    return live


def install(app: FastAPI) -> None:
    """Create the application's fingerprint cache."""
    app.state.live = Live(app.state.pool)


router = APIRouter()

CONTENT_TYPE = "text/event-stream"


@router.get("/live")
def live(request: Request) -> Response:
    """Send the fingerprint, or the end of the login. Another status would stop the browser's
    retries.
    """
    try:
        person(request)
    except LoginNeededError:
        return _event("over", "the login ended")
    except StoreUnavailableError:
        return _event("now", AWAY)
    return _event("now", live_of(request.app).now())


def _event(name: str, data: str) -> Response:
    text = f"retry: {TICK_SECONDS * 1000:.0f}\nevent: {name}\ndata: {data}\n\n"
    return Response(text, media_type=CONTENT_TYPE)
