"""Looks that take long: one at a time, 30 s at most, and a day back at most.

Each has connections of its own, because their settings stay with a connection, and what serves
everybody else shall not wait for it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from threading import Lock

from fastapi import Request
from starlette.exceptions import HTTPException

from dispatcher.api.access import Session
from dispatcher.operators.database.store import Database
from dispatcher.shared.errors import StoreUnavailableError

SECONDS_MAX = 30.0
BACK_MAX = timedelta(days=1)

SLACK = timedelta(minutes=1)
"""By which a client's clock may be behind ours."""

Watch = Callable[..., None]
"""Called after each piece of the work; raises where the time is over."""


class OneAtATime:
    """Lets one look at once into a process."""

    def __init__(self) -> None:
        self._lock = Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Take the turn; raises 429 where somebody else has it."""
        if not self._lock.acquire(blocking=False):
            raise HTTPException(
                HTTPStatus.TOO_MANY_REQUESTS,
                "somebody else's check or comparison is under way. Nothing was looked at; try"
                " again when it has ended.",
                {"Retry-After": str(int(SECONDS_MAX))},
            )
        try:
            yield
        finally:
            self._lock.release()


@contextmanager
def long_look(request: Request, session: Session, since: datetime | None) -> Iterator[Watch]:
    """Take the turn of a long look that begins at `since`; yields what ends it in time.

    Raises 422 for a time that is too long ago, 429 where another look is under way, and
    `StoreUnavailableError` where the database is away, or this takes too long.
    """
    if since is not None and since < datetime.now(UTC) - BACK_MAX - SLACK:
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "`since` is more than a day ago. Nothing was looked at; for a longer time use the"
            " command (`holdfast check`, `holdfast receipts`).",
        )
    turns: OneAtATime = request.app.state.long_looks
    with turns.turn():
        with session.open(Database):
            """The database is there; or it is said as for every other request."""
        ends_at = time.monotonic() + SECONDS_MAX

        def watch(*_: object) -> None:
            if time.monotonic() > ends_at:
                raise StoreUnavailableError(
                    f"this took more than {SECONDS_MAX:.0f} s and was ended; what was seen so far"
                    " is no result. Nothing was changed; ask for a shorter time, or use the"
                    " command."
                )

        yield watch
