"""One GET with every limit: what an inquiry needs of HTTP.

It runs behind the address guard, follows no redirect, and reads no more of an answer than a
delivery does. On httpx alone: inquiries are rare, and that engine runs everywhere.
"""

import asyncio
import ssl
from collections.abc import Sequence

import httpx

from dispatcher.outbound.target import Target, url_fault
from dispatcher.outbound.transport.certificates import UnusablePemError, extend, trust
from dispatcher.outbound.transport.connections import Connections
from dispatcher.outbound.transport.guard import (
    AddressRefusedError,
    Guard,
    Resolve,
    ResolveError,
    system_addresses,
)
from dispatcher.outbound.transport.guarded_backend import GuardedBackend
from dispatcher.shared.outcome import RESPONSE_BYTES_READ_MAX, NoAnswer, Refused, Response
from dispatcher.shared.text import one_line

Headers = Sequence[tuple[str, str]]


class UnusableTargetError(Exception):
    """A target that nothing can be asked of; the message says why."""


class Getter:
    """Asks one target; the requests of one event loop share its connections."""

    def __init__(
        self, target: Target, resolve: Resolve = system_addresses, *, ca_pem: bytes | None = None
    ) -> None:
        """`ca_pem` holds further certificate authorities to trust.

        Raises `UnusableTargetError` where the URL or a certificate cannot be used.
        """
        if fault := url_fault(target.url):
            raise UnusableTargetError(fault)
        try:
            self._base = httpx.URL(target.url)
            tls = _tls(target, ca_pem)
        except (httpx.InvalidURL, UnusablePemError) as error:
            raise UnusableTargetError(one_line(str(error))) from None
        guard = Guard(target.allowed, encrypted=target.encrypted, resolve=resolve)
        self._http = httpx.AsyncHTTPTransport(verify=tls, trust_env=False)
        # httpx has no parameter for a pool or a network backend of one's own.
        self._http._pool = Connections(tls, GuardedBackend(guard))  # noqa: SLF001
        self._connect_timeout = target.connect_timeout

    async def get(
        self, path: str, headers: Headers, total_timeout: float
    ) -> Response | NoAnswer | Refused:
        """Ask for `path` of the target's origin, for `total_timeout` seconds at most."""
        timeouts = {
            "connect": min(self._connect_timeout, total_timeout),
            "pool": total_timeout,
            "read": total_timeout,
            "write": total_timeout,
        }
        request = httpx.Request(
            "GET",
            self._base.copy_with(raw_path=path.encode("ascii")),
            headers=list(headers),
            extensions={"timeout": timeouts},
        )
        try:
            async with asyncio.timeout(total_timeout):
                return await self._exchange(request)
        except TimeoutError:
            return NoAnswer(f"no answer within {total_timeout:g} s")
        except (httpx.HTTPError, ssl.SSLError) as error:
            name = type(error).__name__
            return NoAnswer(one_line(f"{name}: {error}" if str(error) else name))
        except ResolveError as error:
            return NoAnswer(one_line(str(error)))
        except AddressRefusedError as error:
            return Refused(one_line(str(error)))

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def _exchange(self, request: httpx.Request) -> Response:
        response = await self._http.handle_async_request(request)
        body = bytearray()
        try:
            async for chunk in response.aiter_raw():
                body += chunk[: RESPONSE_BYTES_READ_MAX - len(body)]
                if len(body) >= RESPONSE_BYTES_READ_MAX:
                    break
        finally:
            # A body that was not read to its end takes its connection along.
            await response.aclose()
        return Response(
            response.status_code, tuple(response.headers.get_list("retry-after")), bytes(body)
        )


def _tls(target: Target, ca_pem: bytes | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is not None:
        trust(context, ca_pem)
    extend(context, target)
    return context
