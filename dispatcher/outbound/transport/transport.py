"""The interface of an HTTP engine: one request with every limit; no database, no retry."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.shared.outcome import Answer

EngineName = Literal["auto", "asyncio", "httpx"]
ENGINES = get_args(EngineName)


@dataclass(slots=True)
class Progress:
    """How far a request has come; it survives the cancellation of its sending."""

    sent: bool = False
    """Whether a byte of the request may have been written."""


class Transport(Protocol):
    """Sends requests. Faults of the other side are answers, never exceptions."""

    def fault(self, target: Target) -> str | None:
        """Return why this engine cannot send to `target`, or None."""
        ...

    async def send(self, target: Target, request: Request, progress: Progress) -> Answer:
        """Make one attempt that takes no longer than the `total_timeout` of its target."""
        ...

    async def retain(self, targets: Collection[Target]) -> None:
        """Close the connections of every other target."""
        ...

    def drop(self, target: Target) -> None:
        """Use no idle connection to `target` again: one of them gave an answer to another request.

        Does not wait, so that no request can begin on one of them meanwhile.
        """
        ...

    async def close(self) -> None:
        """Close everything."""
        ...
