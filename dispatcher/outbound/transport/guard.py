"""The address guard: resolve a name, judge each of its addresses, return only permitted ones.

It runs where a connection is made, and the judged address is the one that is connected to. So a
name cannot resolve to a public address when it is checked and to a private one when it is used.
Certificates are checked against the name of the URL, as usual.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import httpx

from holdfast.dispatcher.outbound.address import Network, is_allowed, refusal
from holdfast.dispatcher.outbound.transport.names import system_addresses
from holdfast.sink.contract.failpoints import failpoint

ADDRESSES_MAX = 8
"""Maximum number of addresses considered for one name."""

_PORTS = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From host and port to addresses, as text; raises `OSError` or `UnicodeError`."""


class AddressRefusedError(Exception):
    """No address of the host may be connected to."""


class ResolveError(Exception):
    """The host's name has no address, or the resolver did not answer."""


def host_and_port(url: httpx.URL) -> tuple[str, int]:
    """Return the host of `url` in ASCII, as the resolver takes it, and the port."""
    port = _PORTS[url.scheme] if url.port is None else url.port
    return url.raw_host.decode("ascii"), port


class Guard:
    """Finds the addresses at which one target may be reached."""

    def __init__(
        self, allowed: Sequence[Network], *, encrypted: bool, resolve: Resolve = system_addresses
    ) -> None:
        self._allowed = tuple(allowed)
        self._encrypted = encrypted
        self._resolve = resolve

    @property
    def encrypted(self) -> bool:
        """Whether the connection will use TLS."""
        return self._encrypted

    async def addresses(self, host: str, port: int, seconds: float | None) -> list[str]:
        """Return the addresses of `host` that may be connected to, at least one.

        Raises `ResolveError` when the resolver finds none within `seconds`, and
        `AddressRefusedError` when none that it finds is permitted.
        """
        failpoint("D4")
        try:
            async with asyncio.timeout(seconds):
                resolved = await self._resolve(host, port)
        except TimeoutError:
            raise ResolveError(f"{host} was not resolved within {seconds:g} s") from None
        except (OSError, UnicodeError) as error:
            raise ResolveError(f"{host} cannot be resolved: {error}") from None
        permitted = self.permitted(resolved)
        if not permitted:
            raise ResolveError(f"{host} has no address")
        return permitted

    def permitted(self, addresses: Sequence[str]) -> list[str]:
        """Return the permitted ones of the first `ADDRESSES_MAX` addresses.

        Empty only if `addresses` is empty; raises `AddressRefusedError` when none is permitted.
        """
        refusals = []
        permitted = []
        for address in list(dict.fromkeys(addresses))[:ADDRESSES_MAX]:
            reason = refusal(address, self._allowed)
            if reason is None and not self._encrypted and not is_allowed(address, self._allowed):
                reason = f"plain http:// to {address} needs an allow_cidrs entry of the endpoint"
            if reason is None:
                permitted.append(address)
            else:
                refusals.append(reason)
        if refusals and not permitted:
            raise AddressRefusedError("; ".join(refusals))
        return permitted
