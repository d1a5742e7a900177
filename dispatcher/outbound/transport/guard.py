"""The address guard: resolve a name, judge every address of it, and give out only judged ones.

It sits where a connection is made: what was judged is an address, and that very address is what is
connected to. So a name cannot answer with a public address when it is checked and with a private
one when it is used. Certificates are checked against the name of the URL, as usual.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from dispatcher.outbound.address import Network, is_allowed, refusal
from sink.contract.failpoints import failpoint

ADDRESSES_MAX = 8
"""How many addresses of one name are considered."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""From a host and a port to its addresses; raises `OSError` or `UnicodeError`."""


class AddressRefusedError(Exception):
    """No address of the host may be connected to."""


class ResolveError(Exception):
    """The host's name has no address, or the resolver did not answer."""


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """Return the addresses that the system's resolver finds, in its order."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in found]


class Guard:
    """Finds the addresses that one target may be reached at."""

    def __init__(
        self, allowed: Sequence[Network], *, encrypted: bool, resolve: Resolve = system_addresses
    ) -> None:
        self._allowed = tuple(allowed)
        self._encrypted = encrypted
        self._resolve = resolve

    @property
    def encrypted(self) -> bool:
        """Whether what is connected to will speak TLS."""
        return self._encrypted

    async def addresses(self, host: str, port: int, seconds: float | None) -> list[str]:
        """Return the addresses of `host` that may be connected to, at least one.

        Raises `ResolveError` when there is none within `seconds`, and `AddressRefusedError` when
        there is none that is permitted.
        """
        failpoint("D4")
        try:
            async with asyncio.timeout(seconds):
                found = await self._resolve(host, port)
        except TimeoutError:
            raise ResolveError(f"{host} was not resolved within {seconds:g} s") from None
        except (OSError, UnicodeError) as error:
            raise ResolveError(f"{host} cannot be resolved: {error}") from None
        permitted = self._permitted(list(dict.fromkeys(found))[:ADDRESSES_MAX])
        if not permitted:
            raise ResolveError(f"{host} has no address")
        return permitted

    def _permitted(self, addresses: Sequence[str]) -> list[str]:
        refusals = []
        permitted = []
        for address in addresses:
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
