"""The dispatcher's store on Postgres: binds parameters, maps rows, decides nothing."""

from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta

from psycopg.rows import DictRow

from dispatcher.delivery.outage import Outage
from dispatcher.delivery.ports import Instance, OldDays, Pruned, Routed
from dispatcher.delivery.rules.hold_reason import why_held_up
from dispatcher.delivery.rules.replays import ReplayTurn, ReplayWanted
from dispatcher.delivery.rules.values import Claim, Rescued, Settled, Settlement, Wanted
from dispatcher.delivery.store import looks
from dispatcher.delivery.store.claiming import Claimer
from dispatcher.delivery.store.messages import run
from dispatcher.delivery.store.pool import Connection
from dispatcher.delivery.store.replaying import claim_items, rescue_items, settle_items
from dispatcher.delivery.store.routing import PATIENCE_SECONDS, route
from dispatcher.delivery.store.session import CONNECTIONS_MAX, Sessions
from dispatcher.delivery.store.settlement import settle
from dispatcher.delivery.store.warm import warm
from dispatcher.delivery.telemetry.log import Telemetry
from dispatcher.outbound.endpoint import Endpoint, EndpointRow
from dispatcher.outbound.key_window import KeyWindow
from sink.contract.failpoints import failpoint
from sink.contract.states import BreakerState, EndpointState, EnvelopeStyle, OrderPolicy

RESCUE_SECONDS = 2.0
"""The time between two rescues that look at leases of any age, at least."""

RESCUE_SLACK = timedelta(seconds=2)
"""How far back another rescue looks before the time of the last one."""


class PostgresStore:
    """See `dispatcher.delivery.ports.Store` for what each method promises."""

    def __init__(self, dsn: str, connections_max: int = CONNECTIONS_MAX) -> None:
        """`dsn` is a libpq URI or keywords."""
        self._sessions = Sessions(dsn, Outage(Telemetry()), connections_max, warm=warm)
        self._claimer = Claimer(self._sessions)
        self._rescue_whole = looks.Whole(RESCUE_SECONDS)
        self._expired_to = looks.BEGINNING

    async def open(self) -> None:
        """Connect; raises `StoreUnavailableError`, or `CommandError` for another schema."""
        await self._sessions.open()

    async def close(self) -> None:
        """Close every connection."""
        await self._sessions.close()

    async def endpoints(self) -> list[EndpointRow]:
        """Return every endpoint that is not disabled."""
        return [_endpoint(row) for row in await self._sessions.rows("upkeep/endpoint_load")]

    async def note_key_windows(self, windows: Mapping[int, KeyWindow]) -> None:
        """Keep what receivers say of their memory."""
        ids = sorted(windows)
        noted = {"endpoint_ids": ids, "seconds": [windows[id_].seconds for id_ in ids]}
        await self._sessions.rows("upkeep/key_window_note", noted)

    async def route(self, batches: int) -> Routed:
        """Route the oldest batches that no other dispatcher is routing."""
        routed = await route(self._sessions, batches)
        self._claimer.know(routed)
        return routed

    async def claim(self, wanted: Wanted, started: float) -> Claim:
        """Lease due lanes, as many as the pace of their endpoints allows."""
        return await self._claimer.claim(wanted, started)

    async def route_and_claim(self, wanted: Wanted, started: float) -> tuple[Routed, Claim] | None:
        """Route a few entries and lease what is due then."""
        return await self._claimer.route_and_claim(wanted, started)

    async def settle(self, settlements: Sequence[Settlement], *, repeated: bool) -> list[Settled]:
        """Store results where the lease is still held."""
        return await self._sessions.transaction(
            lambda connection: settle(connection, settlements, repeated=repeated), begins=True
        )

    async def rescue(self, lanes: int) -> list[Rescued]:
        """Book expired leases as `unknown`."""

        async def work(connection: Connection) -> tuple[datetime, list[DictRow]]:
            since = {"since": looks.BEGINNING if whole else self._expired_to}
            (look,) = await run(connection, "claiming/lane_expired", since)
            rows = []
            if look["expired"]:
                rows = await run(connection, "claiming/lane_rescue", {"lanes": lanes} | since)
            if rows:
                failpoint("D13")
            return look["at"], rows

        whole = self._rescue_whole.begin()
        at, rows = await self._sessions.transaction(work)
        if whole:
            self._rescue_whole.done()
        if not rows:
            self._expired_to = at - RESCUE_SLACK
        return [Rescued(**row) for row in rows]

    async def claim_replays(self, wanted: ReplayWanted, started: float) -> ReplayTurn:
        """Take items of replays that are under way."""
        return await self._sessions.transaction(lambda c: claim_items(c, wanted, started))

    async def settle_replays(
        self, settlements: Sequence[Settlement], *, repeated: bool
    ) -> list[Settled]:
        """Store results of replayed entries where the lease is still held."""
        return await self._sessions.transaction(
            lambda connection: settle_items(connection, settlements, repeated=repeated)
        )

    async def rescue_replays(self, items: int) -> list[Rescued]:
        """Book expired leases of replayed entries as `unknown`."""
        return await self._sessions.transaction(lambda c: rescue_items(c, items))

    async def is_pending(self, endpoint_ids: Collection[int]) -> bool:
        """Return whether a drain has to go on."""
        rows = await self._sessions.rows("upkeep/pending", {"endpoint_ids": list(endpoint_ids)})
        return bool(rows[0]["pending"])

    async def waiting_lanes(self, endpoint_ids: Collection[int]) -> dict[int, int]:
        """Return the number of due lanes by endpoint."""
        rows = await self._sessions.rows(
            "upkeep/lane_waiting", {"endpoint_ids": list(endpoint_ids)}
        )
        return {row["endpoint_id"]: row["lanes"] for row in rows}

    async def held_up(self) -> dict[str, str]:
        """Return what is paused, or waits for its breaker or its receiver, by endpoint."""
        rows = await self._sessions.rows("upkeep/endpoint_held_up")
        return {row["name"]: why_held_up(row) for row in rows}

    async def ensure_partitions(self) -> int:
        """Make missing partitions."""
        rows = await self._sessions.rows("upkeep/partitions_ensure")
        return int(rows[0]["created"])

    async def old_days(self, days: int) -> OldDays:
        """Return what is old enough to be dropped."""
        rows = await self._sessions.rows("upkeep/prune_days", {"days": days})
        found = [(row["parent"], row["day"]) for row in rows if row["day"] is not None]
        return OldDays(rows[0]["today"], found)

    async def prune(self, table: str, day: date, days: int) -> Pruned:
        """Drop a day; the database decides whether it may go."""

        async def work(connection: Connection) -> Pruned:
            await run(connection, "upkeep/prune_patience")
            parameters = {"parent": table, "day": day, "days": days}
            return Pruned(**(await run(connection, "upkeep/prune_day", parameters))[0])

        return await self._sessions.transaction(work, within=PATIENCE_SECONDS)

    async def beat(self, instance: Instance, in_flight: int, *, draining: bool) -> datetime:
        """Record a sign of life."""
        sign = {
            "id": instance.id,
            "host": instance.host,
            "pid": instance.pid,
            "version": instance.version,
            "in_flight": in_flight,
            "draining": draining,
        }

        async def work(connection: Connection) -> datetime:
            (row,) = await run(connection, "upkeep/instance_beat", sign)
            failpoint("D12")
            at: datetime = row["at"]
            return at

        return await self._sessions.transaction(work)

    async def leave(self, instance: Instance) -> None:
        """Remove the instance's row."""
        await self._sessions.rows("upkeep/instance_leave", {"id": instance.id})


def _endpoint(row: DictRow) -> EndpointRow:
    endpoint = Endpoint(
        id=row["id"],
        name=row["name"],
        url=row["url"],
        allowed=tuple(row["allow_cidrs"]),
        connect_timeout=row["connect_timeout_ms"] / 1000,
        total_timeout=row["total_timeout_ms"] / 1000,
        concurrency=row["concurrency"],
        schedule_seconds=tuple(row["schedule_seconds"]),
        order_policy=OrderPolicy(row["order_policy"]),
        envelope=EnvelopeStyle(row["envelope"]),
        headers=tuple(sorted(row["headers"].items())),
        ca_ref=row["ca_ref"],
        client_cert_ref=row["client_cert_ref"],
        client_key_ref=row["client_key_ref"],
        rate_per_second=row["rate_per_second"],
        budget_seconds=row["budget_seconds"],
        breaker_threshold=row["breaker_threshold"],
        slow_start_seconds=row["slow_start_seconds"],
        inquiry_path=row["inquiry_path"],
    )
    active = EndpointState(row["state"]) is EndpointState.ACTIVE
    breaker = BreakerState(row["breaker"])
    seen = row["key_window_seen_at"] is not None
    return EndpointRow(
        endpoint,
        active,
        tuple(row["secret_refs"]),
        breaker,
        row["held"],
        KeyWindow(row["key_window_seconds"]) if seen else None,
    )
