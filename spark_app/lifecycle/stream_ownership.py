"""A restart continues this process's run, and never takes the stream back from a newer driver.

A run that starts fences the one before, whichever of the two is right. A person replaces a driver
on purpose; a restart is automatic. So a restart first checks whether the stream still has the run
that failed.
"""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from uuid import UUID

from sink.errors import Fenced
from sink.foreach_batch import OutboxSink

if TYPE_CHECKING:
    import psycopg


class StreamOwnership:
    """The runs with which this process has taken its stream."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._own_runs: list[UUID] = []
        self._confirmed = False

    @property
    def is_new(self) -> bool:
        """Whether no query of this process has started."""
        return not self._own_runs

    def claim_with(self, run_id: UUID) -> None:
        """Record a run that is about to take the stream: it may succeed without an answer."""
        self._own_runs.append(run_id)

    def confirm(self, *, taken: bool) -> None:
        """Record whether the latest run has taken the stream, or leaves it to its first batch."""
        self._confirmed |= taken

    def is_free(self, sink: OutboxSink) -> bool:
        """Return whether no run ever took the stream; raises what `OutboxSink.read` raises."""
        return sink.read(self._current) is None

    def require(self, sink: OutboxSink) -> None:
        """Raise `Fenced` when another driver has taken the stream since.

        Until a run of this process has taken it, this never raises `Fenced`. Also raises what
        `OutboxSink.read` raises.
        """
        if not self._own_runs:
            return
        current = sink.read(self._current)
        if current in self._own_runs:
            self._confirmed = True
        elif self._confirmed:
            raise Fenced(
                f"stream {self._stream!r}: run {current} took the stream while run"
                f" {self._own_runs[-1]} of this driver was down. Nothing is lost: the newer run"
                " replays the rest from the checkpoint. This driver stops; if it is the right one,"
                " stop the other and start this one again."
            )

    def _current(self, connection: "psycopg.Connection") -> UUID | None:
        found = connection.execute(_statement(), {"stream": self._stream}).fetchone()
        return None if found is None else UUID(str(found[0]))


@cache
def _statement() -> bytes:
    return (files("spark_app.lifecycle") / "sql" / "current_run.sql").read_bytes()
