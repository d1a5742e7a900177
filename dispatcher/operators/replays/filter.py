"""Which entries a replay is about. Pure: what a person asked for, checked, and as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sink.contract.key import Key

KEYS_MAX = 1000
"""Keys that one filter may name; more of them are a range of time, a batch or a subject."""


class ReplayScope(StrEnum):
    """Where an entry stands at an endpoint, as far as a filter asks."""

    DELIVERED = "delivered"
    DEAD = "dead"
    WAITING = "waiting"
    """It is still to be sent."""


class ReplayFilterError(ValueError):
    """The filter cannot be used; the text says why, for the person who gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """What all entries of a replay have in common; None and empty mean any."""

    endpoint: str | None = None
    subject: str | None = None
    stream: str | None = None
    first_batch: int | None = None
    last_batch: int | None = None
    """Batch ids of `stream`, both included, of whatever checkpoint."""

    since: datetime | None = None
    until: datetime | None = None
    """When the sink wrote the entry: from `since` on, before `until`."""

    states: tuple[ReplayScope, ...] = ()
    types: tuple[str, ...] = ()
    keys: tuple[UUID, ...] = ()

    def check(self) -> None:
        """Raise `ReplayFilterError` for a filter that is empty or contradicts itself."""
        if not self.stored():
            raise ReplayFilterError(
                "an empty filter would replay everything; name an endpoint, a subject, a stream,"
                " a time, a state, a type or keys"
            )
        batches = self.first_batch is not None or self.last_batch is not None
        if batches and self.stream is None:
            raise ReplayFilterError("batches have their numbers in a stream: name the stream too")
        if _reversed(self.first_batch, self.last_batch):
            raise ReplayFilterError("the first batch comes after the last one")
        for moment in (self.since, self.until):
            if moment is not None and moment.tzinfo is None:
                raise ReplayFilterError("a time needs its offset from UTC")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ReplayFilterError("the time ends before it begins")
        if len(self.keys) > KEYS_MAX:
            raise ReplayFilterError(
                f"{len(self.keys)} keys are too many, {KEYS_MAX} at most; use a time or a batch"
            )

    def stored(self) -> dict[str, Any]:
        """Return what was given, as JSON.

        >>> ReplayFilter(endpoint="payouts", states=(ReplayScope.DEAD,)).stored()
        {'endpoint': 'payouts', 'states': ['dead']}
        """
        given = {
            "endpoint": self.endpoint,
            "subject": self.subject,
            "stream": self.stream,
            "first_batch": self.first_batch,
            "last_batch": self.last_batch,
            "since": self.since and self.since.isoformat(),
            "until": self.until and self.until.isoformat(),
            "states": [each.value for each in self.states],
            "types": list(self.types),
            "keys": [Key(each).text for each in self.keys],
        }
        return {name: value for name, value in given.items() if value not in (None, [])}


def filter_stored(stored: Mapping[str, Any]) -> ReplayFilter:
    """Return the filter that `ReplayFilter.stored` wrote."""
    since, until = stored.get("since"), stored.get("until")
    return ReplayFilter(
        endpoint=stored.get("endpoint"),
        subject=stored.get("subject"),
        stream=stored.get("stream"),
        first_batch=stored.get("first_batch"),
        last_batch=stored.get("last_batch"),
        since=datetime.fromisoformat(since) if since else None,
        until=datetime.fromisoformat(until) if until else None,
        states=tuple(ReplayScope(each) for each in stored.get("states", ())),
        types=tuple(stored.get("types", ())),
        keys=tuple(Key.parse(each).digest for each in stored.get("keys", ())),
    )


def _reversed(first: int | None, last: int | None) -> bool:
    return first is not None and last is not None and first > last
