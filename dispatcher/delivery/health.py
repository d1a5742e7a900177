"""Whether this process is live and ready, judged by the progress of its loops.

The loops write and the web server's thread reads. Nothing here blocks, so a loop that hangs cannot
delay the answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.dispatcher.shared.clock import seconds

STEP_SECONDS = 150.0
"""Time limit of a step: three tries of a transaction, each with its waits for pool and server."""

ANSWER_SECONDS = 20.0
"""Maximum age of the database's last answer while this process counts as ready."""


@dataclass(slots=True)
class _Loop:
    limit: float
    turned: float


class Health:
    """The progress of each loop. Written by the event loop's thread, read by any."""

    def __init__(self, clock: Callable[[], float] = seconds) -> None:
        self._clock = clock
        self._loops: dict[str, _Loop] = {}
        self._answered: float | None = None
        self._misfit: str | None = None
        self._writable = True
        self._clock_fault: str | None = None
        self._loaded = False
        self._stopping = False

    def turn(self, name: str, limit: float) -> None:
        """Record progress of a loop; `limit` is the seconds until it must be called again."""
        self._loops[name] = _Loop(limit, self._clock())

    def end(self, name: str) -> None:
        """Record the normal end of a loop."""
        self._loops.pop(name, None)

    def loaded(self) -> None:
        """Record that the endpoints were loaded."""
        self._loaded = True

    def answered(self, misfit: str | None) -> None:
        """Record an answer of the database; `misfit` says what is wrong with its schema."""
        self._answered, self._misfit = self._clock(), misfit

    def wrote(self, *, accepted: bool) -> None:
        """Record whether the database accepted a heartbeat; it is read-only, or full, if not."""
        self._writable = accepted

    def clock(self, fault: str | None) -> None:
        """Record why this host's clock prevents claims; None: it does not."""
        self._clock_fault = fault

    def stopping(self) -> None:
        """Record that no new work is started."""
        self._stopping = True

    def not_live(self) -> list[str]:
        """Return a message for each loop that is stuck; empty while every loop makes progress."""
        now = self._clock()
        return [
            f"the loop {name!r} has made no progress for {now - loop.turned:.0f} s"
            for name, loop in list(self._loops.items())
            if now - loop.turned > loop.limit
        ]

    def not_ready(self) -> list[str]:
        """Return a message for each obstacle to delivery; empty when there is none."""
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
        faults += [fault for fault in (self._misfit, self._clock_fault) if fault is not None]
        if not self._writable:
            # The caller has no token: the log has the server's reason.
            faults.append("the database answers and refuses to write (log line store.away)")
        return faults
