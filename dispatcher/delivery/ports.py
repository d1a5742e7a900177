"""What the service needs from outside: a store and a transport. Each has one real implementation.

The store is Postgres (`dispatcher.store`). The transport makes one HTTP call with every limit and
knows no database and no retry (`dispatcher.outbound.transport`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from dispatcher.delivery.rules.replays import ReplayTurn, ReplayWanted
from dispatcher.delivery.rules.values import Claim, Rescued, Settled, Settlement, Wanted
from dispatcher.outbound.endpoint import EndpointRow
from dispatcher.outbound.key_window import KeyWindow


@dataclass(frozen=True, slots=True)
class Routed:
    """What one routing transaction did."""

    batches: int
    lanes: int
    priorities: Sequence[Sequence[int]] = field(default=(), compare=False)
    """Endpoints with priorities of these lanes: where a claim has to look."""


@dataclass(frozen=True, slots=True)
class Instance:
    """How this process shows in `dispatcher_instance`."""

    id: UUID
    host: str
    pid: int
    version: str


@dataclass(frozen=True, slots=True)
class OldDays:
    """The days of entries and attempts that are old enough to be dropped."""

    today: date
    """By the database's clock, UTC."""
    days: Sequence[tuple[str, date]]
    """Table and day, entries first, oldest first."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What became of one day."""

    outcome: str
    """`dropped`; `refused`: something in it is undelivered; `busy`: in use; `gone`: not there."""
    row_count: int | None
    bytes: int | None
    waiting: int | None
    unrouted: int | None
    dead_letters: int | None
    abandoned: int | None
    """Undelivered for endpoints that are disabled, which keeps nothing."""
    endpoints: Sequence[str] | None
    """Those that `waiting` and `dead_letters` are for."""


class Results(Protocol):
    """Where a settler stores what came of leases."""

    async def settle(self, settlements: Sequence[Settlement], *, repeated: bool) -> list[Settled]:
        """Store results. What is missing in the answer had lost its lease and is not stored.

        `repeated` says that an earlier call with some of them ended in doubt.
        """
        ...


class Store(Results, Protocol):
    """Delivery state. Every method is one transaction and raises `StoreUnavailableError`."""

    async def endpoints(self) -> list[EndpointRow]:
        """Return every endpoint that is not disabled."""
        ...

    async def note_key_windows(self, windows: Mapping[int, KeyWindow]) -> None:
        """Keep how long receivers say, by endpoint, that they keep a key."""
        ...

    async def route(self, batches: int) -> Routed:
        """Make or advance the lanes of up to `batches` unrouted batches, oldest first."""
        ...

    async def claim(self, wanted: Wanted, started: float) -> Claim:
        """Lease due lanes. `started` is this process's clock from before the call.

        A lane whose next entry is missing is not leased: it is due again a minute later.
        """
        ...

    async def route_and_claim(self, wanted: Wanted, started: float) -> tuple[Routed, Claim] | None:
        """Route new batches and lease what is due then, sooner than `route` and `claim` do.

        None where these have many entries, where an endpoint's pace has to be looked at, or where
        somebody would have to be waited for: then nothing is done.
        """
        ...

    async def rescue(self, lanes: int) -> list[Rescued]:
        """Book what up to `lanes` expired leases covered as `unknown`, and make the lanes due."""
        ...

    async def claim_replays(self, wanted: ReplayWanted, started: float) -> ReplayTurn:
        """Take items of replays as far as their rate and their endpoints' paces allow.

        Entries to send again come back under a lease; other items only move their lanes. `started`
        is this process's clock from before the call.
        """
        ...

    async def settle_replays(
        self, settlements: Sequence[Settlement], *, repeated: bool
    ) -> list[Settled]:
        """Store what came of replayed entries, as `settle` does for lanes."""
        ...

    async def rescue_replays(self, items: int) -> list[Rescued]:
        """Book up to `items` expired leases of replayed entries as `unknown`."""
        ...

    async def is_pending(self, endpoint_ids: Collection[int]) -> bool:
        """Return whether a drain has to go on.

        That is while a batch is unrouted, something is leased, a lane or an item of a replay at one
        of these endpoints is due, or a replay has to be ended.
        """
        ...

    async def waiting_lanes(self, endpoint_ids: Collection[int]) -> dict[int, int]:
        """Return how many due lanes each of these endpoints has, without those that have none."""
        ...

    async def held_up(self) -> dict[str, str]:
        """Return why and until when nothing is sent to endpoints that have something, by name."""
        ...

    async def ensure_partitions(self) -> int:
        """Make the partitions of the coming days; returns how many were missing."""
        ...

    async def old_days(self, days: int) -> OldDays:
        """Return the days of which every row is more than `days` days old."""
        ...

    async def prune(self, table: str, day: date, days: int) -> Pruned:
        """Drop one of `old_days`, unless it is needed. Stops writers for two seconds at most."""
        ...

    async def beat(self, instance: Instance, in_flight: int, *, draining: bool) -> datetime:
        """Record a sign of life; returns the database's time."""
        ...

    async def leave(self, instance: Instance) -> None:
        """Remove the instance's row."""
        ...
