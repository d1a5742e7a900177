"""/healthz: whether this process and the database answer. No token is needed."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from threading import Lock

from fastapi import FastAPI
from fastapi.responses import JSONResponse

from holdfast.dispatcher.operators.common.pool import OperatorPool
from holdfast.dispatcher.operators.database.store import Database
from holdfast.dispatcher.shared.clock import seconds
from holdfast.dispatcher.shared.errors import StoreUnavailableError
from holdfast.sink.contract.exits import CommandError

KEPT_SECONDS = 1.0
"""Cache lifetime of an answer, so that frequent probes do not load the database."""


class Readiness:
    """The database's readiness, cached."""

    def __init__(self, pool: OperatorPool, clock: Callable[[], float] = seconds) -> None:
        self._pool = pool
        self._clock = clock
        self._lock = Lock()
        self._looked_at = -KEPT_SECONDS
        self._faults: list[str] = []

    def faults(self) -> list[str]:
        """Return why requests cannot be answered; empty if they can."""
        with self._lock:
            if self._clock() - self._looked_at >= KEPT_SECONDS:
                self._faults = self._look()
                self._looked_at = self._clock()
            return self._faults

    def _look(self) -> list[str]:
        try:
            with self._pool.lend(Database, "api") as store:
                misfit = store.schema_mismatch()
        except (StoreUnavailableError, CommandError):
            # The caller has no token, so the database's message is not passed on.
            return ["the database does not answer"]
        return [] if misfit is None else [misfit]


def install(app: FastAPI, pool: OperatorPool) -> None:
    """Answer at /healthz/live and /healthz/ready."""
    readiness = Readiness(pool)
    # The threads of requests may all be at work.
    own = ThreadPoolExecutor(1, "health")

    @app.get("/healthz/live", include_in_schema=False)
    async def live() -> JSONResponse:
        return _said([])

    @app.get("/healthz/ready", include_in_schema=False)
    async def ready() -> JSONResponse:
        return _said(await asyncio.get_running_loop().run_in_executor(own, readiness.faults))


def _said(faults: list[str]) -> JSONResponse:
    status = HTTPStatus.SERVICE_UNAVAILABLE if faults else HTTPStatus.OK
    return JSONResponse({"ok": not faults, "faults": faults}, status)
