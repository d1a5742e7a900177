"""The state of deliveries in Postgres. Every method is one transaction of the dispatcher's role.

Every method raises `StoreUnavailableError`; whether its transaction committed is then unknown.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta

from psycopg.rows import DictRow

from holdfast.dispatcher.delivery.rules.pace import why_held_up
from holdfast.dispatcher.delivery.rules.replays import ReplayRequest, ReplayTurn
from holdfast.dispatcher.delivery.rules.values import (
    Beat,
    Claim,
    ClaimRequest,
    Instance,
    OldDays,
    Pruned,
    Rescued,
    Routed,
    Settled,
    Settlement,
)
from holdfast.dispatcher.delivery.store.claiming import Claimer
from holdfast.dispatcher.delivery.store.messages import run
from holdfast.dispatcher.delivery.store.pool import Connection
from holdfast.dispatcher.delivery.store.replaying import claim_items, rescue_items, settle_items
from holdfast.dispatcher.delivery.store.routing import PATIENCE_SECONDS, route
from holdfast.dispatcher.delivery.store.scan_plan import BEGINNING, FullScanTimer
from holdfast.dispatcher.delivery.store.session import CONNECTIONS_MAX, Outage, Sessions, read_range
from holdfast.dispatcher.delivery.store.settlement import settle
from holdfast.dispatcher.delivery.store.warm import warm
from holdfast.dispatcher.delivery.telemetry.log import Telemetry
from holdfast.dispatcher.outbound.endpoint import EndpointRow, endpoint_of
from holdfast.dispatcher.outbound.key_window import KeyWindow
from holdfast.dispatcher.shared.errors import UnservedError
from holdfast.sink.contract import schema
from holdfast.sink.contract.failpoints import failpoint

RESCUE_SECONDS = 2.0
"""Minimum time between two rescues that scan leases of any age."""

RESCUE_SLACK = timedelta(seconds=2)
"""How far before the time of the last rescue the next one starts."""


class PostgresStore:
    """The store that the loops of one dispatcher share."""

    def __init__(self, dsn: str, connections_max: int = CONNECTIONS_MAX) -> None:
        """`dsn` is a libpq URI or keywords."""
        self._sessions = Sessions(dsn, Outage(Telemetry()), connections_max, warm=warm)
        self._claimer = Claimer(self._sessions)
        self._full_rescue = FullScanTimer(RESCUE_SECONDS)
        self._expired_to = BEGINNING

    async def open(self) -> None:
        """Connect. Raises `CommandError` for another schema revision."""
        await self._sessions.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._sessions.close()

    async def endpoints(self) -> list[EndpointRow]:
        """Return every endpoint that is not disabled."""
        return [endpoint_of(row) for row in await self._sessions.rows("upkeep/endpoint_load")]

    async def lanes_on_hold(self) -> list[tuple[int, int]]:
        """Return the leased lanes whose subject is on hold, as endpoint and subject."""
        rows = await self._sessions.rows("upkeep/lanes_on_hold")
        return [(row["endpoint_id"], row["subject_id"]) for row in rows]

    async def note_key_windows(self, windows: Mapping[int, KeyWindow]) -> None:
        """Store receivers' key-retention windows, by endpoint."""
        ids = sorted(windows)
        noted = {"endpoint_ids": ids, "seconds": [windows[id_].seconds for id_ in ids]}
        await self._sessions.rows("upkeep/key_window_note", noted)

    async def route(self, batches: int) -> Routed:
        """Create or advance the lanes of up to `batches` unrouted batches, oldest first.

        Skips batches that another dispatcher is routing.
        """
        routed = await route(self._sessions, batches)
        self._claimer.know(routed)
        return routed

    async def claim(self, request: ClaimRequest, started: float) -> Claim:
        """Lease due lanes, up to the limits of their endpoints' paces.

        `started` is this process's clock from before the call. A lane whose next entry is missing
        gets no lease: it is due again a minute later.
        """
        return await self._claimer.claim(request, started)

    async def route_and_claim(
        self, request: ClaimRequest, started: float
    ) -> tuple[Routed, Claim] | None:
        """Route new batches and lease what is due then, sooner than `route` and `claim` do.

        Does nothing and returns None where the batches have many entries, where an endpoint's pace
        limits it, or where it would wait for a lock.
        """
        return await self._claimer.route_and_claim(request, started)

    async def settle(self, settlements: Sequence[Settlement], *, repeated: bool) -> list[Settled]:
        """Store results. One that is missing in the answer lost its lease and is not stored.

        `repeated`: an earlier call with some of them failed, and may have committed.
        """
        return await self._sessions.transaction(
            lambda connection: settle(connection, settlements, repeated=repeated), begins=True
        )

    async def rescue(self, lanes: int) -> list[Rescued]:
        """Record what up to `lanes` expired leases covered as `unknown`; makes the lanes due."""

        async def work(connection: Connection) -> tuple[datetime, list[DictRow]]:
            since = {"since": BEGINNING if full else self._expired_to}
            (scan,) = await run(connection, "claiming/lane_expired", since)
            rows = []
            if scan["expired"]:
                rows = await run(connection, "claiming/lane_rescue", {"lanes": lanes} | since)
            if rows:
                failpoint("D13")
            return scan["at"], rows

        full = self._full_rescue.begin()
        at, rows = await self._sessions.transaction(work)
        if full:
            self._full_rescue.done()
        if not rows:
            self._expired_to = at - RESCUE_SLACK
        return [Rescued(**row) for row in rows]

    async def claim_replays(self, request: ReplayRequest, started: float) -> ReplayTurn:
        """Take items of replays as far as their rate and their endpoints' paces allow.

        Entries to send again are returned under a lease; other items only move their lanes.
        `started` is this process's clock from before the call.
        """
        return await self._sessions.transaction(lambda c: claim_items(c, request, started))

    async def settle_replays(
        self, settlements: Sequence[Settlement], *, repeated: bool
    ) -> list[Settled]:
        """Store results of replayed entries, as `settle` does for lanes."""
        return await self._sessions.transaction(
            lambda connection: settle_items(connection, settlements, repeated=repeated)
        )

    async def rescue_replays(self, items: int) -> list[Rescued]:
        """Record up to `items` expired leases of replayed entries as `unknown`."""
        return await self._sessions.transaction(lambda c: rescue_items(c, items))

    async def is_pending(self, endpoint_ids: Collection[int]) -> bool:
        """Return whether a drain must continue.

        It must while a batch is unrouted, something is leased, a lane or a replay item of one of
        these endpoints is due, or a replay must be finished.
        """
        rows = await self._sessions.rows("upkeep/pending", {"endpoint_ids": list(endpoint_ids)})
        return bool(rows[0]["pending"])

    async def waiting_lanes(self, endpoint_ids: Collection[int]) -> dict[int, int]:
        """Return the number of due lanes of those of these endpoints that have any."""
        rows = await self._sessions.rows(
            "upkeep/lane_waiting", {"endpoint_ids": list(endpoint_ids)}
        )
        return {row["endpoint_id"]: row["lanes"] for row in rows}

    async def held_up(self) -> dict[str, str]:
        """Return, by name, why and until when endpoints with pending work get no requests."""
        rows = await self._sessions.rows("upkeep/endpoint_held_up")
        return {row["name"]: why_held_up(row) for row in rows}

    async def ensure_partitions(self) -> int:
        """Create missing partitions of the coming days; returns how many."""
        rows = await self._sessions.rows("upkeep/partitions_ensure")
        return int(rows[0]["created"])

    async def old_days(self, days: int) -> OldDays:
        """Return the days of which every row is more than `days` days old."""
        rows = await self._sessions.rows("upkeep/prune_days", {"days": days})
        days_to_drop = [(row["parent"], row["day"]) for row in rows if row["day"] is not None]
        return OldDays(rows[0]["today"], days_to_drop)

    async def prune(self, table: str, day: date, days: int) -> Pruned:
        """Drop one of `old_days` unless it is needed. Blocks writers for two seconds at most."""

        async def work(connection: Connection) -> Pruned:
            await run(connection, "upkeep/prune_patience")
            parameters = {"parent": table, "day": day, "days": days}
            return Pruned(**(await run(connection, "upkeep/prune_day", parameters))[0])

        return await self._sessions.transaction(work, within=PATIENCE_SECONDS)

    async def beat(self, instance: Instance, in_flight: int, *, draining: bool) -> Beat:
        """Record a heartbeat of this process; returns what there is to do.

        Raises `UnservedError`, and records nothing, once the schema does not serve this version.
        """
        heartbeat = {
            "id": instance.id,
            "host": instance.host,
            "pid": instance.pid,
            "version": instance.version,
            "in_flight": in_flight,
            "draining": draining,
        }

        async def work(connection: Connection) -> Beat:
            revision, misfit = await read_range(connection)
            if misfit is not None:
                raise UnservedError(misfit)
            (row,) = await run(connection, "upkeep/instance_beat", heartbeat)
            if revision is not None and schema.records(revision):
                await connection.execute(
                    schema.RECORD, schema.session("dispatcher", str(instance.id))
                )
            failpoint("D12")
            return Beat(**row)

        return await self._sessions.transaction(work)

    async def misfit(self) -> str | None:
        """Return why the schema does not serve this version; None if it does."""
        _, misfit = await self._sessions.transaction(read_range)
        return misfit

    async def leave(self, instance: Instance) -> None:
        """Delete the instance's row; others claim what it has released."""

        async def work(connection: Connection) -> None:
            await run(connection, "upkeep/instance_leave", {"id": instance.id})
            await run(connection, "doorbell_changed")

        await self._sessions.transaction(work)
