"""Replays: the filter, the counts of a plan, and what keeps it from being sent. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from holdfast.dispatcher.operators.common.text import visible
from holdfast.dispatcher.operators.entries.rules import key_of
from holdfast.dispatcher.shared.rate import sustained
from holdfast.sink.contract.canonical import rfc3339
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.key import Key
from holdfast.sink.contract.states import BreakerState, EndpointState, ReplayKind

KEYS_MAX = 1000
"""Maximum number of keys in one filter; for more, use a time range, a batch or a subject."""


MEANS = {
    ReplayKind.RELEASE: "dead, holding its lane: the lane continues with it, with a full schedule",
    ReplayKind.HASTEN: "waiting for a retry: due now, the count of attempts continues",
    ReplayKind.RESEND: "sent again beside the lane, same key and bytes, after live traffic",
    ReplayKind.NOTHING: "unchanged: sent in any case, or in another replay",
    ReplayKind.REISSUE: "decided again under a new key: the business action is REPEATED",
}
"""What a replay does with an entry, by its kind."""


class ReplayScope(StrEnum):
    """The delivery states that a filter distinguishes."""

    DELIVERED = "delivered"
    DEAD = "dead"
    WAITING = "waiting"
    """Not sent yet."""


class ReplayFilterError(ValueError):
    """The filter is not valid; the text says why, for the person who gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFilter:
    """A filter of entries; None and empty mean any."""

    endpoint: str | None = None
    subject: str | None = None
    stream: str | None = None
    first_batch: int | None = None
    last_batch: int | None = None
    """Batch ids of `stream`, both included, of any checkpoint."""

    since: datetime | None = None
    until: datetime | None = None
    """When the sink wrote the entry: `since` included, `until` excluded."""

    states: tuple[ReplayScope, ...] = ()
    types: tuple[str, ...] = ()
    keys: tuple[UUID, ...] = ()

    def check(self) -> None:
        """Raise `ReplayFilterError` for a filter that is empty or contradicts itself."""
        if not self.stored():
            raise ReplayFilterError(
                "an empty filter would replay everything; give an endpoint, a subject, a stream,"
                " a time, a state, a type or keys"
            )
        batches = self.first_batch is not None or self.last_batch is not None
        if batches and self.stream is None:
            raise ReplayFilterError("batches are numbered within a stream: give the stream too")
        if _reversed(self.first_batch, self.last_batch):
            raise ReplayFilterError("the first batch comes after the last one")
        for moment in (self.since, self.until):
            if moment is not None and moment.tzinfo is None:
                raise ReplayFilterError("a time needs its offset from UTC")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ReplayFilterError("the time ends before it begins")
        if len(self.keys) > KEYS_MAX:
            raise ReplayFilterError(
                f"{len(self.keys)} keys are too many, at most {KEYS_MAX}; use a time or a batch"
            )

    def stored(self) -> dict[str, Any]:
        """Return the given members as JSON values.

        >>> ReplayFilter(endpoint="payouts", states=(ReplayScope.DEAD,)).stored()
        {'endpoint': 'payouts', 'states': ['dead']}
        """
        members = {
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
        return {name: value for name, value in members.items() if value not in (None, [])}


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


Row = dict[str, Any]


def plan_counts(rows: Iterable[Row], overlaps: Iterable[Row]) -> Row:
    """Return the counts of a plan, as JSON values.

    `entries`; `kinds` by `ReplayKind`; `endpoints` by name and kind; `items_at` and `rates` by
    endpoint; `oldest` and `newest` of the items; `no_op_there`: delivered with the receiver's
    signed receipt; `outside_window`; `taken`: left out because another replay will send them;
    `overlaps`: the other replays with their counts.
    """
    kinds: dict[str, int] = {}
    endpoints: dict[str, dict[str, int]] = {}
    items_at: dict[str, int] = {}
    rates: dict[str, int | None] = {}
    totals = dict.fromkeys(("entries", "no_op_there", "outside_window", "taken"), 0)
    oldest, newest = [], []
    for row in rows:
        name, kind, entries = row["endpoint"], row["kind"], row["entries"]
        kinds[kind] = kinds.get(kind, 0) + entries
        endpoints.setdefault(name, {})[kind] = entries
        rates[name] = row["rate_per_second"]
        for total in totals:
            totals[total] += row[total]
        if kind != ReplayKind.NOTHING:
            items_at[name] = items_at.get(name, 0) + entries
            oldest.append(row["oldest"])
            newest.append(row["newest"])
    return {
        **totals,
        "kinds": kinds,
        "endpoints": endpoints,
        "items_at": items_at,
        "rates": rates,
        "oldest": _text(min(oldest, default=None)),
        "newest": _text(max(newest, default=None)),
        "overlaps": [{**row, "id": str(row["id"])} for row in overlaps],
    }


def _text(moment: Any) -> str | None:
    return moment.isoformat() if moment is not None else None


def drain_seconds(
    items: Mapping[str, int], rates: Mapping[str, int | None], rate: int | None
) -> float | None:
    """Return the minimum duration of a replay, or None when no rate limits it.

    `items` and `rates` are by endpoint, `rate` is of the whole replay; rates are items a second.
    """
    bounds = [count / sustained(each) for name, count in items.items() if (each := rates.get(name))]
    if rate:
        bounds.append(sum(items.values()) / rate)
    return max(bounds, default=None)


def obstacles(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each row of `replays/obstacles`: the obstacle, and what ends it.

    >>> list(obstacles([{"endpoint": None}]))
    ['no dispatcher is running: nothing is sent before `holdfast dispatch` runs']
    """
    for row in rows:
        name = row["endpoint"]
        if name is None:
            yield "no dispatcher is running: nothing is sent before `holdfast dispatch` runs"
        elif row["endpoint_state"] != EndpointState.ACTIVE:
            why = f" ({visible(row['state_reason'])})" if row["state_reason"] else ""
            yield (
                f"endpoint {name} is {row['endpoint_state']}{why}: nothing is sent there before"
                f" `holdfast endpoint resume {name} --reason TEXT`"
            )
        elif row["breaker"] == BreakerState.OPEN:
            yield (
                f"the breaker of endpoint {name} is open: nothing is sent there before a probe"
                " succeeds"
            )
        else:
            yield (
                f"endpoint {name} is held until {rfc3339(row['held_until'])}, as its receiver asked"
            )


def keys_of(texts: Sequence[str]) -> tuple[UUID, ...]:
    """Return keys, each once; raises `CommandError` (usage) for a text that is not a key."""
    return tuple(dict.fromkeys(key_of(text).digest for text in texts))


def few_keys_of(texts: Sequence[str]) -> tuple[UUID, ...]:
    """Return keys as `keys_of` does; raises `CommandError` (usage) for more than `KEYS_MAX`."""
    keys = keys_of(texts)
    if len(keys) > KEYS_MAX:
        raise CommandError(
            f"{len(keys)} keys are too many, at most {KEYS_MAX}. Nothing was changed; use"
            " `holdfast replay plan` with a time, a batch or a state.",
            ExitCode.USAGE,
            code="too_many_keys",
        )
    return keys
