"""The endpoints as they are right now: loaded every second, together with their secrets.

An endpoint that nothing can be sent to (a missing secret, a URL that cannot be read, a timeout
that does not fit the lease) keeps its lanes waiting and is said once, in words. Nothing of it is
tried or given up.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dispatcher.core.lease import fits, lease_seconds_for
from dispatcher.core.target import Target, url_fault
from dispatcher.core.values import Endpoint, EndpointRow
from dispatcher.ports import Store, Transport
from dispatcher.receiver.secret import Secret
from dispatcher.secrets import Secrets, read_secrets
from dispatcher.signing import Signer
from dispatcher.telemetry import Line, Telemetry


@dataclass(frozen=True, slots=True)
class Ready:
    """An active endpoint with everything that an attempt needs."""

    endpoint: Endpoint
    target: Target
    secrets: tuple[Secret, ...]
    signer: Signer


class Endpoints:
    """The endpoints that can be sent to, and what keeps the others."""

    def __init__(
        self, store: Store, transport: Transport, telemetry: Telemetry, lease_seconds: float | None
    ) -> None:
        """`lease_seconds` None takes the lease from the endpoints' timeouts."""
        self._store = store
        self._transport = transport
        self._telemetry = telemetry
        self._fixed_lease_seconds = lease_seconds
        self._ready: dict[int, Ready] = {}
        self._faults: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self.lease_seconds = lease_seconds or lease_seconds_for([])

    @property
    def ready(self) -> Mapping[int, Ready]:
        """The endpoints that can be sent to, by id."""
        return MappingProxyType(self._ready)

    @property
    def faults(self) -> Mapping[int, str]:
        """Why other active endpoints cannot be sent to, by id."""
        return MappingProxyType(self._faults)

    def name(self, endpoint_id: int) -> str:
        """Return the name of an endpoint that was loaded at some time."""
        return self._names.get(endpoint_id, str(endpoint_id))

    async def refresh(self) -> None:
        """Load endpoints and secrets again; raises `StoreUnavailableError`."""
        rows = [row for row in await self._store.endpoints() if row.active]
        secrets = await asyncio.to_thread(_secrets_of, rows)
        self.lease_seconds = self._fixed_lease_seconds or lease_seconds_for(
            [row.endpoint.total_timeout for row in rows]
        )
        faults = {row.endpoint.id: self._fault(row.endpoint, secrets) for row in rows}
        self._names |= {row.endpoint.id: row.endpoint.name for row in rows}
        self._report({id_: fault for id_, fault in faults.items() if fault})
        self._ready = {
            row.endpoint.id: _ready(row.endpoint, secrets[row.endpoint.id].values)
            for row in rows
            if not faults[row.endpoint.id]
        }
        await self._transport.retain([ready.target for ready in self._ready.values()])

    def disable(self, endpoint_id: int, reason: str) -> None:
        """Stop sending to an endpoint that is gone, before the next load says so too."""
        if self._ready.pop(endpoint_id, None) is not None:
            name = self.name(endpoint_id)
            self._telemetry.warn(Line.ENDPOINT_DISABLED, endpoint=name, reason=reason)

    def _fault(self, endpoint: Endpoint, secrets: Mapping[int, Secrets]) -> str | None:
        if fault := secrets[endpoint.id].fault:
            return fault
        if fault := url_fault(endpoint.url) or self._transport.fault(_target(endpoint)):
            return fault
        if not fits(self.lease_seconds, endpoint.total_timeout):
            return (
                f"a lease of {self.lease_seconds:g} s is too short for its total timeout of"
                f" {endpoint.total_timeout:g} s"
            )
        return None

    def _report(self, faults: dict[int, str]) -> None:
        for id_, fault in faults.items():
            if self._faults.get(id_) != fault:
                self._telemetry.warn(Line.ENDPOINT_WAITING, endpoint=self.name(id_), reason=fault)
        for id_ in self._faults.keys() - faults.keys():
            self._telemetry.say(Line.ENDPOINT_READY, endpoint=self.name(id_))
        self._faults = faults


def _secrets_of(rows: list[EndpointRow]) -> dict[int, Secrets]:
    return {row.endpoint.id: read_secrets(row.secret_refs) for row in rows}


def _ready(endpoint: Endpoint, secrets: tuple[Secret, ...]) -> Ready:
    return Ready(endpoint, _target(endpoint), secrets, Signer(secrets))


def _target(endpoint: Endpoint) -> Target:
    return Target(
        endpoint_id=endpoint.id,
        url=endpoint.url,
        allowed=endpoint.allowed,
        connect_timeout=endpoint.connect_timeout,
    )
