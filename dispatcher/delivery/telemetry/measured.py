"""A store whose calls are measured: what the metrics know of delivery, they know from here.

A dispatcher that nobody asks for its metrics works on the store itself.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from uuid import UUID

from dispatcher.delivery.ports import Instance, OldDays, Pruned, Routed, Store
from dispatcher.delivery.rules.replays import ReplayTurn, ReplayWanted
from dispatcher.delivery.rules.values import Claim, Lane, Rescued, Settled, Settlement, Wanted
from dispatcher.delivery.telemetry.metrics import Measures
from dispatcher.outbound.endpoint import EndpointRow
from dispatcher.outbound.key_window import KeyWindow
from dispatcher.outbound.receipt import says_stale
from dispatcher.shared.clock import seconds
from sink.contract.states import Outcome


class MeasuredStore:
    """`store`, with what goes through it written down. See `dispatcher.delivery.ports.Store`."""

    def __init__(self, store: Store, measures: Measures) -> None:
        self._store = store
        self._measures = measures
        self._names: dict[int, str] = {}
        self._claimed: dict[tuple[int, int, UUID], Lane] = {}
        self._ahead = 0.0
        """What the database's clock, as a POSIX time, is ahead of `seconds`."""

    async def route(self, batches: int) -> Routed:
        """Not measured."""
        return await self._store.route(batches)

    async def note_key_windows(self, windows: Mapping[int, KeyWindow]) -> None:
        """Not measured."""
        await self._store.note_key_windows(windows)

    async def is_pending(self, endpoint_ids: Collection[int]) -> bool:
        """Not measured."""
        return await self._store.is_pending(endpoint_ids)

    async def waiting_lanes(self, endpoint_ids: Collection[int]) -> dict[int, int]:
        """Not measured."""
        return await self._store.waiting_lanes(endpoint_ids)

    async def held_up(self) -> dict[str, str]:
        """Not measured."""
        return await self._store.held_up()

    async def ensure_partitions(self) -> int:
        """Not measured."""
        return await self._store.ensure_partitions()

    async def old_days(self, days: int) -> OldDays:
        """Not measured."""
        return await self._store.old_days(days)

    async def prune(self, table: str, day: date, days: int) -> Pruned:
        """Not measured."""
        return await self._store.prune(table, day, days)

    async def leave(self, instance: Instance) -> None:
        """Not measured."""
        await self._store.leave(instance)

    async def endpoints(self) -> list[EndpointRow]:
        """Keep the names, which label what is measured."""
        rows = await self._store.endpoints()
        self._names |= {row.endpoint.id: row.endpoint.name for row in rows}
        return rows

    async def claim(self, wanted: Wanted, started: float) -> Claim:
        """Measure how long a claim takes, and how much."""
        before = seconds()
        claim = await self._store.claim(wanted, started)
        self._came(claim, before)
        return claim

    async def route_and_claim(self, wanted: Wanted, started: float) -> tuple[Routed, Claim] | None:
        """Measure it as a claim, if it was one."""
        before = seconds()
        done = await self._store.route_and_claim(wanted, started)
        if done is not None:
            self._came(done[1], before)
        return done

    async def settle(self, settlements: Sequence[Settlement], *, repeated: bool) -> list[Settled]:
        """Measure how long settling takes, and count what is now on record."""
        before = seconds()
        settled = await self._store.settle(settlements, repeated=repeated)
        now = seconds()
        self._measures.settle_seconds.observe(now - before)
        for each in settled:
            self._count(each.settlement, now + self._ahead)
        for settlement in _lost(settlements, settled):
            self._claimed.pop(_claim_of(settlement), None)
            self._measures.fenced[self._label(settlement.endpoint_id)] += 1
        return settled

    async def claim_replays(self, wanted: ReplayWanted, started: float) -> ReplayTurn:
        """Count the items."""
        turn = await self._store.claim_replays(wanted, started)
        self._measures.replay_items += turn.found
        return turn

    async def settle_replays(
        self, settlements: Sequence[Settlement], *, repeated: bool
    ) -> list[Settled]:
        """Count what is now on record; how long ago it was decided says nothing here."""
        settled = await self._store.settle_replays(settlements, repeated=repeated)
        for each in settled:
            self._count(each.settlement, 0.0)
        self._measures.fenced.update(
            self._label(each.endpoint_id) for each in _lost(settlements, settled)
        )
        return settled

    async def rescue_replays(self, items: int) -> list[Rescued]:
        """Count what ended with its lease."""
        return self._rescued(await self._store.rescue_replays(items))

    async def rescue(self, lanes: int) -> list[Rescued]:
        """Count what ended with its lease."""
        return self._rescued(await self._store.rescue(lanes))

    def _came(self, claim: Claim, before: float) -> None:
        self._measures.claim_seconds.observe(seconds() - before)
        self._measures.claim_lanes.observe(len(claim.lanes))
        self._forget(before)
        for lane in claim.lanes:
            self._claimed[lane.endpoint_id, lane.subject_id, lane.token] = lane

    def _rescued(self, rescued: list[Rescued]) -> list[Rescued]:
        for each in rescued:
            label = self._label(each.endpoint_id)
            self._measures.rescued[label] += 1
            self._measures.unknown[label] += 1
        return rescued

    async def beat(self, instance: Instance, in_flight: int, *, draining: bool) -> datetime:
        """Compare the clocks."""
        before = seconds()
        at = await self._store.beat(instance, in_flight, draining=draining)
        self._ahead = at.timestamp() - (before + seconds()) / 2
        self._measures.clock_skew_seconds = (datetime.now(UTC) - at).total_seconds()
        return at

    def _count(self, settlement: Settlement, now: float) -> None:
        measures, (name,) = self._measures, self._label(settlement.endpoint_id)
        lane = self._claimed.pop(_claim_of(settlement), None)
        created = {} if lane is None else {each.sequence: each.created_at for each in lane.entries}
        for attempt in settlement.attempts:
            labels = (name, attempt.outcome.value)
            measures.attempts[labels] += 1
            measures.attempt_seconds.observe(attempt.duration_ms / 1000, labels)
            if attempt.outcome is Outcome.UNKNOWN:
                measures.unknown[name,] += 1
            elif attempt.outcome is Outcome.DELIVERED and attempt.sequence in created:
                since = created[attempt.sequence].timestamp()
                measures.end_to_end_seconds.observe(max(0.0, now - since), (name,))
                # Of an item of a replay, what was sent before explains it.
                measures.stale[name,] += attempt.number == 1 and says_stale(attempt.receipt)
            measures.other_keys[name,] += attempt.other_key is not None
            measures.barred[name,] += attempt.barred
        if settlement.dead is not None:
            measures.dead[name,] += 1

    def _label(self, endpoint_id: int) -> tuple[str]:
        return (self._names.get(endpoint_id, ""),)

    def _forget(self, now: float) -> None:
        """Drop lanes that were never settled; the oldest claims come first."""
        for key, lane in list(self._claimed.items())[:16]:
            if lane.trusted_until < now - 600:
                del self._claimed[key]


def _lost(settlements: Sequence[Settlement], settled: Sequence[Settled]) -> list[Settlement]:
    stored = {id(each.settlement) for each in settled}
    return [each for each in settlements if id(each) not in stored]


def _claim_of(settlement: Settlement) -> tuple[int, int, UUID]:
    return settlement.endpoint_id, settlement.subject_id, settlement.token
