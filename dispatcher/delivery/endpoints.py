"""The current endpoints: loaded every few seconds, with the values of their references.

An endpoint that cannot be sent to (a missing secret, a header that is not allowed, an invalid URL,
a timeout that does not fit the lease) keeps its lanes waiting, and its fault is logged once. None
of its entries is tried or exhausted.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from holdfast.dispatcher.delivery.rules.lease import fits, lease_seconds_for
from holdfast.dispatcher.delivery.store.postgres import PostgresStore
from holdfast.dispatcher.delivery.telemetry.log import Line, Telemetry
from holdfast.dispatcher.outbound.endpoint import Endpoint, EndpointRow
from holdfast.dispatcher.outbound.key_window import KeyWindow, is_shorter, window_text
from holdfast.dispatcher.outbound.reference_rule import ReferenceRule
from holdfast.dispatcher.outbound.request import USER_AGENT, Composer, Headers
from holdfast.dispatcher.outbound.secrets import Material, read_material, target_of
from holdfast.dispatcher.outbound.signing import Signer
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.transport import Transport
from holdfast.receiver.message.secret import Secret


@dataclass(frozen=True, slots=True)
class Ready:
    """An active endpoint with everything that an attempt needs."""

    endpoint: Endpoint
    target: Target
    secrets: tuple[Secret, ...]
    signer: Signer
    composer: Composer = field(default_factory=lambda: Composer(USER_AGENT))
    headers: Headers = field(default=(), repr=False)
    """The operator's additional headers."""
    key_window: KeyWindow | None = None
    """How long the receiver keeps keys; None: the receiver has not said."""
    hidden: tuple[str, ...] = field(default=(), repr=False)
    """Secrets that are masked in stored answers."""


class Endpoints:
    """The endpoints that can be sent to, and the faults of the others."""

    def __init__(
        self,
        store: PostgresStore,
        transport: Transport,
        telemetry: Telemetry,
        lease_seconds: float | None,
        references: ReferenceRule,
    ) -> None:
        """`lease_seconds` None derives the lease from the endpoints' timeouts."""
        self._references = references
        self._store = store
        self._transport = transport
        self._telemetry = telemetry
        self._fixed_lease_seconds = lease_seconds
        self._ready: dict[int, Ready] = {}
        self._ready_view = MappingProxyType(self._ready)
        self._faults: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._exposed: dict[int, tuple[str, ...]] = {}
        self._windows: dict[int, KeyWindow] = {}
        self._stated: dict[int, KeyWindow] = {}
        self.lease_seconds = lease_seconds or lease_seconds_for([])

    @property
    def ready(self) -> Mapping[int, Ready]:
        """The endpoints that can be sent to, by id."""
        return self._ready_view

    @property
    def faults(self) -> Mapping[int, str]:
        """Why other active endpoints cannot be sent to, by id."""
        return MappingProxyType(self._faults)

    def name(self, endpoint_id: int) -> str:
        """Return the name of an endpoint that was ever loaded, else its id."""
        return self._names.get(endpoint_id, str(endpoint_id))

    def learn(self, ready: Ready, stated: KeyWindow) -> bool:
        """Store the key-retention window that a receiver states with the next load.

        A window shorter than the budget of an entry counts as that long: retries need it, and one
        that says less must not bury what waits. Returns whether that is so, or it was longer.
        """
        id_, needed = ready.endpoint.id, KeyWindow(ready.endpoint.budget_seconds)
        too_short = is_shorter(stated, needed)
        window = needed if too_short else stated
        shrunk = ready.key_window is not None and is_shorter(window, ready.key_window)
        if window != ready.key_window:
            self._windows[id_] = window
        if (too_short or shrunk) and self._stated.get(id_) != stated:
            self._telemetry.warn(
                Line.KEY_WINDOW_SHRUNK,
                endpoint=self.name(id_),
                stated=window_text(stated),
                kept=window_text(window),
                before=None if ready.key_window is None else window_text(ready.key_window),
            )
        self._stated[id_] = stated
        return too_short or shrunk

    async def note_windows(self) -> None:
        """Store the windows from `learn`; raises `StoreUnavailableError`."""
        if self._windows:
            windows = dict(self._windows)
            await self._store.note_key_windows(windows)
            self._windows = {
                id_: window for id_, window in self._windows.items() if windows.get(id_) != window
            }

    async def refresh(self) -> None:
        """Load endpoints and their references again; raises `StoreUnavailableError`."""
        await self.note_windows()
        loaded = await self._store.endpoints()
        rows = [row for row in loaded if row.active]
        materials = await asyncio.to_thread(_materials, rows, self._references)
        self.lease_seconds = self._fixed_lease_seconds or lease_seconds_for(
            [row.endpoint.attempt_seconds for row in rows]
        )
        faults = {
            row.endpoint.id: self._fault(row.endpoint, materials[row.endpoint.id]) for row in rows
        }
        self._names |= {row.endpoint.id: row.endpoint.name for row in loaded}
        self._report({id_: fault for id_, fault in faults.items() if fault})
        self._ready = {
            row.endpoint.id: _ready(row, materials[row.endpoint.id])
            for row in rows
            if not faults[row.endpoint.id]
        }
        self._ready_view = MappingProxyType(self._ready)
        self._warn({id_: material.exposed for id_, material in materials.items()})
        await self._transport.retain([ready.target for ready in self._ready.values()])

    def disable(self, endpoint_id: int, reason: str) -> None:
        """Stop sending to an endpoint that answered 410, before the next load removes it."""
        if self._ready.pop(endpoint_id, None) is not None:
            name = self.name(endpoint_id)
            self._telemetry.warn(Line.ENDPOINT_DISABLED, endpoint=name, reason=reason)

    def _fault(self, endpoint: Endpoint, material: Material) -> str | None:
        if material.fault:
            return material.fault
        target = target_of(endpoint, material)
        if fault := self._transport.fault(target):
            return fault
        if not fits(self.lease_seconds, endpoint.attempt_seconds):
            return (
                f"a lease of {self.lease_seconds:g} s is too short for an attempt, which may take"
                f" {endpoint.attempt_seconds:g} s"
            )
        return None

    def _report(self, faults: dict[int, str]) -> None:
        for id_, fault in faults.items():
            if self._faults.get(id_) != fault:
                self._telemetry.warn(Line.ENDPOINT_WAITING, endpoint=self.name(id_), reason=fault)
        for id_ in self._faults.keys() - faults.keys():
            self._telemetry.info(Line.ENDPOINT_READY, endpoint=self.name(id_))
        self._faults = faults

    def _warn(self, exposed: dict[int, tuple[str, ...]]) -> None:
        for id_, references in exposed.items():
            if references and self._exposed.get(id_) != references:
                warning = (
                    f"every user of this machine can read {', '.join(references)}; chmod 600 them"
                )
                self._telemetry.warn(Line.ENDPOINT_READY, endpoint=self.name(id_), warning=warning)
        self._exposed = exposed


def _materials(rows: list[EndpointRow], rule: ReferenceRule) -> dict[int, Material]:
    return {row.endpoint.id: read_material(row, rule) for row in rows}


def _ready(row: EndpointRow, material: Material) -> Ready:
    endpoint = row.endpoint
    return Ready(
        endpoint,
        target_of(endpoint, material),
        material.secrets,
        Signer(material.secrets),
        Composer(USER_AGENT, endpoint.envelope, material.headers),
        material.headers,
        row.key_window,
        material.hidden,
    )
