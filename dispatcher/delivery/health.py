"""Whether this process is alive and ready, as far as its own loops can tell.

The loops write here and the web server's thread reads; nothing here waits for anything, so a loop
that hangs cannot keep the answer from being given.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.shared.clock import seconds

STEP_SECONDS = 150.0
"""What a step may take: three tries of a transaction, each with its waits for pool and server."""

ANSWER_SECONDS = 20.0
"""How old the database's last answer may be where this process is called ready."""


@dataclass(slots=True)
class _Loop:
    limit: float
    turned: float


class Health:
    """What each loop last did. Written by the event loop's thread, read by any."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        self._clock = clock
        self._loops: dict[str, _Loop] = {}
        self._answered: float | None = None
        self._misfit: str | None = None
        self._loaded = False
        self._stopping = False

    def turn(self, name: str, limit: float) -> None:
        """Take note that a loop lives; `limit` is the seconds until it must do so again."""
        self._loops[name] = _Loop(limit, self._clock())

    def end(self, name: str) -> None:
        """Take note that a loop has ended as it should."""
        self._loops.pop(name, None)

    def loaded(self) -> None:
        """Take note that the endpoints were loaded."""
        self._loaded = True

    def answered(self, misfit: str | None) -> None:
        """Take note that the database answered; `misfit` says what is wrong with its schema."""
        self._answered, self._misfit = self._clock(), misfit

    def stopping(self) -> None:
        """Take note that nothing new is begun any more."""
        self._stopping = True

    def not_live(self) -> list[str]:
        """Return what stands still, in words; empty while every loop turns."""
        now = self._clock()
        return [
            f"the loop {name!r} has stood still for {now - loop.turned:.0f} s"
            for name, loop in list(self._loops.items())
            if now - loop.turned > loop.limit
        ]

    def not_ready(self) -> list[str]:
        """Return what keeps this process from delivering, in words; empty when nothing does."""
        faults = []
        if self._stopping:
            faults.append("the dispatcher is stopping")
        if not self._loaded:
            faults.append("the endpoints are not loaded yet")
        answered, now = self._answered, self._clock()
        if answered is None:
            faults.append("the database has not answered yet")
        elif now - answered > ANSWER_SECONDS:
            faults.append(f"the database has not answered for {now - answered:.0f} s")
        if self._misfit is not None:
            faults.append(self._misfit)
        return faults
