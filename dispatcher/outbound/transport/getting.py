"""One GET with every limit: what an inquiry needs of HTTP.

It runs behind the address guard, follows no redirect, and reads no more of an answer than a
delivery does. Inquiries are rare, so they use httpx alone, whichever engine delivers.
"""

import asyncio
from collections.abc import Sequence

import httpx

from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.certificates import (
    UnusablePemError,
    bundled_authorities,
    extend,
)
from holdfast.dispatcher.outbound.transport.guard import (
    AddressRefusedError,
    Resolve,
    ResolveError,
)
from holdfast.dispatcher.outbound.transport.httpx_channel import (
    FAULTS,
    HttpxChannel,
    Received,
    fault_text,
)
from holdfast.dispatcher.outbound.transport.names import system_addresses
from holdfast.dispatcher.shared.outcome import NoAnswer, Refused, Response
from holdfast.dispatcher.shared.text import one_line

Headers = Sequence[tuple[str, str]]


class UnusableTargetError(Exception):
    """No request can be made to this target; the message says why."""


class Getter:
    """Makes GET requests to one target; those of one event loop share its connections."""

    def __init__(
        self, target: Target, resolve: Resolve = system_addresses, *, ca_pem: bytes | None = None
    ) -> None:
        """`ca_pem` holds further certificate authorities to trust.

        Raises `UnusableTargetError` where the URL or a certificate cannot be used.
        """
        try:
            tls = extend(bundled_authorities(ca_pem), target)
            self._channel = HttpxChannel(target, tls, resolve)
        except (httpx.InvalidURL, UnusablePemError) as error:
            raise UnusableTargetError(one_line(str(error))) from None

    async def get(
        self, path: str, headers: Headers, total_timeout: float
    ) -> Response | NoAnswer | Refused:
        """Request `path` of the target's origin, for `total_timeout` seconds at most.

        A response that is cut short is `NoAnswer`: half a receipt proves nothing.
        """
        request, received = (
            self._channel.request("GET", headers, total_timeout, path=path),
            Received(),
        )
        try:
            async with asyncio.timeout(total_timeout):
                await self._channel.exchange(request, received)
        except FAULTS as error:
            return NoAnswer(fault_text(error, total_timeout))
        except ResolveError as error:
            return NoAnswer(one_line(str(error)))
        except AddressRefusedError as error:
            return Refused(one_line(str(error)))
        if received.status is None:
            return NoAnswer("no status line")
        return Response(received.status, received.retry_after, bytes(received.body))

    async def close(self) -> None:
        """Close every connection."""
        await self._channel.aclose()
