"""Maintenance of partitions: creates those of the coming days and drops old ones.

Delivery never waits for it, and its errors never stop delivery: they are logged as warnings, and
the step is retried. Several dispatchers may run it at once; the database lets one of them drop at a
time.
"""

from datetime import date

from holdfast.dispatcher.delivery.rules.values import Pruned
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.shared.text import one_line

SHORTEST_SECONDS = 30.0
LONGEST_SECONDS = 3600.0
"""Range of the interval, which grows to an hour; a partition in use is tried again then."""


class Maintenance:
    """Creates partitions and, with `retain_days`, prunes once a day by the database's clock."""

    def __init__(self, store: PostgresStore, telemetry: Telemetry, retain_days: int | None) -> None:
        self._store = store
        self._telemetry = telemetry
        self._retain_days = retain_days
        self._pruned_on: date | None = None

    async def step(self) -> bool:
        """Do what is due. Never raises; always returns False."""
        try:
            await self.make_partitions()
            if self._retain_days is not None:
                await self._prune(self._retain_days)
        except Exception as error:  # noqa: BLE001 - its errors must not stop delivery
            self._telemetry.warn(Line.MAINTENANCE_FAILED, error=one_line(str(error)))
        return False

    async def make_partitions(self) -> None:
        """Create the partitions of the coming days; raises `StoreUnavailableError`."""
        created = await self._store.ensure_partitions()
        if created:
            self._telemetry.info(Line.PARTITIONS, created=created)

    async def _prune(self, retain_days: int) -> None:
        old = await self._store.old_days(retain_days)
        if old.today == self._pruned_on:
            return
        done = True
        for table, day in old.days:
            pruned = await self._store.prune(table, day, retain_days)
            self._report(table, day, pruned)
            if pruned.outcome == "busy":
                done = False
        if done:
            self._pruned_on = old.today

    def _report(self, table: str, day: date, pruned: Pruned) -> None:
        fields = {"table": table, "day": day.isoformat()}
        match pruned.outcome:
            case "dropped":
                self._telemetry.counts["days_dropped"] += 1
                self._telemetry.info(
                    Line.DAY_DROPPED,
                    **fields,
                    rows=pruned.row_count,
                    bytes=pruned.bytes,
                    abandoned=pruned.abandoned,
                )
            case "refused":
                self._telemetry.counts["days_kept"] += 1
                self._telemetry.warn(
                    Line.DAY_KEPT,
                    **fields,
                    waiting=pruned.waiting,
                    unrouted=pruned.unrouted,
                    dead_letters=pruned.dead_letters,
                    endpoints=list(pruned.endpoints or ()),
                )
            case "busy":
                self._telemetry.info(Line.DAY_KEPT, **fields, in_use=True)
            case _:
                pass  # already dropped by another dispatcher or a person
