"""Reads the events that the exposure job recorded and did not apply."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.dispatcher.operators.common.session import OperatorSession, Row
from holdfast.sink.contract.states import LateReason


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter of events; None means any."""

    stream: str | None = None
    merchant: str | None = None
    reason: LateReason | None = None
    since: datetime | None = None
    """Recorded at this moment or later."""


class LateEvents(OperatorSession):
    """Reads of events that were not applied."""

    def newest(self, wanted: Wanted, *, limit: int, before: int | None = None) -> list[Row]:
        """Return events, the newest first; only those with an id below `before`.

        Raises `CommandError` (nothing matched) for an unknown stream.
        """
        if wanted.stream is not None:
            self._known_stream(wanted.stream)
        given: Row = {
            "stream": wanted.stream,
            "merchant": wanted.merchant,
            "reason": wanted.reason,
            "since": wanted.since,
            "before": before,
            "limit": limit,
        }
        return self._all("late_events/list", given)
