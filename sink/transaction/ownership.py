"""Whether a stream is still the writer's that claimed it, or another run has taken it since.

A run that starts fences the one before, whichever of the two is right: a person replaces a driver
on purpose. A restart is automatic, so a writer that has claimed a stream takes it only from its own
runs.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from holdfast.sink.errors import Fenced


class Ownership:
    """The runs with which a writer may have taken its stream."""

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._own: set[UUID | None] = set()
        self.is_claimed = False
        self.claim_id: UUID | None = None
        """The claim whose epoch the next run continues; None where the stream was free."""

    def expect(self, run_id: UUID) -> None:
        """Record a run that is about to take the stream: it may succeed without an answer."""
        self._own.add(run_id)

    def claimed(self, claim_id: UUID | None) -> None:
        """Record a claim; without an id, that no run ever had the stream."""
        self.is_claimed, self.claim_id = True, claim_id
        self._own.add(claim_id)

    def require(self, stream: Mapping[str, Any] | None) -> None:
        """Raise `Fenced` where another run has taken the claimed stream; `stream` is its row."""
        run_id = None if stream is None else stream["run_id"]
        if self.is_claimed and run_id not in self._own:
            raise Fenced(
                f"stream {self._stream!r}: run {run_id} took the stream after this driver had"
                " claimed it. Nothing is lost, and this driver no longer changes the checkpoint:"
                " the newer run replays the rest from it. This driver stops; if it is the right"
                " one, stop the other and start this one again."
            )
