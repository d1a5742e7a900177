"""Long reads (check, receipts): one at a time, at most 30 s, at most a day back.

Each uses its own connections: the settings of these reads stay with a connection, and other
requests must not wait for them.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from threading import Lock

from fastapi import Request
from starlette.exceptions import HTTPException

from holdfast.dispatcher.api.access import Session
from holdfast.dispatcher.api.problems import limited
from holdfast.dispatcher.api.requests import Between
from holdfast.dispatcher.operators.common.times import When
from holdfast.dispatcher.operators.database.store import Database
from holdfast.dispatcher.shared.errors import StoreUnavailableError

SECONDS_MAX = 30.0
BACK_MAX = timedelta(days=1)

SLACK = timedelta(minutes=1)
"""Tolerance for a client's clock that is behind."""

Watch = Callable[..., None]
"""Called after each piece of work; raises when the time is up."""


class ExclusiveRun:
    """Admits one long read at a time in this process."""

    def __init__(self) -> None:
        self._lock = Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Run alone; raises 429 if another one is running."""
        if not self._lock.acquire(blocking=False):
            raise HTTPException(
                HTTPStatus.TOO_MANY_REQUESTS,
                "another check or comparison is running. Nothing was read; try again when it has"
                " ended.",
                limited("long-reads", 'q=1;qu="concurrent-requests"', SECONDS_MAX),
            )
        try:
            yield
        finally:
            self._lock.release()


def range_of(times: Between) -> tuple[When, When]:
    """Return the range of a long read: the last day where none is given."""
    return When(times.since, back=BACK_MAX), When(times.until)


@contextmanager
def long_read(request: Request, session: Session, since: datetime | None) -> Iterator[Watch]:
    """Admit a long read that begins at `since`; yields the watch that ends it in time.

    Raises 422 if `since` is too long ago, 429 if another one is running, and
    `StoreUnavailableError` if the database is unavailable or the read takes too long.
    """
    if since is not None and since < datetime.now(UTC) - BACK_MAX - SLACK:
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "`since` is more than a day ago. Nothing was read; for a longer time use the command"
            " (`holdfast check`, `holdfast receipts`).",
        )
    turns: ExclusiveRun = request.app.state.long_reads
    with turns.turn():
        with session.open(Database):
            """Raises the usual error if the database is unavailable."""
        ends_at = time.monotonic() + SECONDS_MAX

        def watch(*_: object) -> None:
            if time.monotonic() > ends_at:
                raise StoreUnavailableError(
                    f"this took more than {SECONDS_MAX:.0f} s and was ended without a result."
                    " Nothing was changed; request a shorter time range, or use the command."
                )

        yield watch
