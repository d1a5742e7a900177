"""The clients of one target: each can reach a single, judged address.

pyreqwest resolves names itself, out of our sight, unless a name is pinned to an address. So there
is a client for every address, and a name that was judged cannot change before it is connected to.
"""

import asyncio
import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Lock

from pyreqwest.client import Client, ClientBuilder
from pyreqwest.exceptions import BuilderError
from pyreqwest.http import Url

from dispatcher.clock import seconds
from dispatcher.core.target import Target, url_fault
from dispatcher.transport.certificates import extend, identity, trust
from dispatcher.transport.guard import AddressRefusedError, Guard, Resolve, ResolveError

KEEP_ALIVE_SECONDS = 15.0
"""How long an idle connection is kept; servers mostly keep it longer, so few close as we write."""

RESOLVED_SECONDS = 30.0
"""How long addresses are used before the name is resolved and judged again."""

CONNECT_SHARE = 0.9
"""How much of the total deadline connecting may take: its end must be told from an answer's."""

_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_environment = Lock()


class NoAuthoritiesError(Exception):
    """The system has no certificate authorities where the client looks for them."""


class Roots:
    """The certificate authorities that every target is trusted by."""

    def __init__(self, ca_pem: bytes | None) -> None:
        """Raises `UnusablePemError` when `ca_pem` holds none, `NoAuthoritiesError` as it says."""
        self._ca_pem = ca_pem
        if ca_pem is not None:
            trust(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ca_pem)
        try:
            build(self.builder())
        except BuilderError as error:
            raise NoAuthoritiesError(f"no authorities can be loaded: {error.message}") from None

    def builder(self) -> ClientBuilder:
        """Return a builder with every limit that does not depend on a target."""
        builder = (
            ClientBuilder()
            .no_proxy()
            .follow_redirects(enable=False)
            .referer(enable=False)
            .default_cookie_store(enable=False)
            .gzip(enable=False)
            .brotli(enable=False)
            .zstd(enable=False)
            .deflate(enable=False)
            .http1_only()
            .http1_lower_case_headers()
            .min_tls_version("TLSv1.2")
            .pool_idle_timeout(timedelta(seconds=KEEP_ALIVE_SECONDS))
        )
        return builder if self._ca_pem is None else builder.add_root_certificate_pem(self._ca_pem)


class PinnedClients:
    """Gives out a client for a judged address of the target."""

    def __init__(self, target: Target, roots: Roots, resolve: Resolve) -> None:
        """Raises `ValueError` for a URL that the client cannot read, or `UnusablePemError`."""
        self.in_use = 0
        """How many requests are under way."""
        if fault := url_fault(target.url):
            raise ValueError(fault)
        self.url = Url(target.url)
        self._target = target
        self._roots = roots
        # The client's own reading of the URL: it is the client that connects.
        self._host = (self.url.host_str or "").strip("[]")
        self._is_name = self.url.domain is not None
        # An address is not looked up: the client would not follow what came of it.
        judged = resolve if self._is_name else _itself
        self._guard = Guard(target.allowed, encrypted=target.encrypted, resolve=judged)
        self._port = self.url.port_or_known_default or 0
        self._clients: dict[str, Client] = {}
        self._addresses: list[str] = []
        self._first: Client | None = None
        self._connect_seconds = target.connect_timeout
        self._fresh_until = 0.0
        self._changing = asyncio.Lock()
        self._preparing: asyncio.Task[None] | None = None
        if target.encrypted:
            extend(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), target)
            build(self._builder())

    def ready(self) -> Client | None:
        """Return the client to use now, or None when the name has to be resolved first."""
        return self._first if seconds() < self._fresh_until else None

    async def first(self, total_timeout: float) -> Client:
        """Resolve and judge the name if that is due, and return a client for its first address.

        Raises `ResolveError` and `AddressRefusedError`.
        """
        async with self._changing:
            client = self.ready()
            if client is None:
                await self._look_up(total_timeout)
                client = self._first = await self._client(self._addresses[0])
                self._fresh_until = seconds() + RESOLVED_SECONDS
            return client

    def prepare(self) -> None:
        """Have the first client made, unless that was begun before; a failure is the request's."""
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare())

    async def _prepare(self) -> None:
        with suppress(ResolveError, AddressRefusedError, BuilderError):
            await self.first(self._target.connect_timeout / CONNECT_SHARE)

    async def after(self, failed: Client) -> Client | None:
        """Return a client for the address behind that of `failed`, or None at the last.

        Whoever comes next begins with that address, too, and after the last resolves anew.
        """
        async with self._changing:
            known = [self._clients.get(address) for address in self._addresses]
            place = known.index(failed) + 1 if failed in known else len(known)
            if place == len(known):
                self._fresh_until = 0.0
                return None
            self._first = await self._client(self._addresses[place])
            return self._first

    async def close(self) -> None:
        """Close every connection."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait({self._preparing})
        self._fresh_until = 0.0
        while self._clients:
            await self._clients.popitem()[1].close()

    async def _look_up(self, total_timeout: float) -> None:
        limit = min(self._target.connect_timeout, CONNECT_SHARE * total_timeout)
        try:
            found = await self._guard.addresses(self._host, self._port, limit)
        except ResolveError:
            if not self._addresses:
                raise
            return  # what was judged stays judged while the resolver is away
        except BaseException:
            self._forget()
            raise
        share = limit / len(found)
        if share != self._connect_seconds:
            self._clients.clear()
            self._connect_seconds = share
        self._addresses = found
        # Not closed: what is under way on them ends by itself, and then their connections do.
        self._clients = {a: client for a, client in self._clients.items() if a in found}

    def _forget(self) -> None:
        self._addresses = []
        self._first = None
        self._clients.clear()

    async def _client(self, address: str) -> Client:
        if address not in self._clients:
            self._clients[address] = await asyncio.to_thread(self._pinned, address)
        return self._clients[address]

    def _pinned(self, address: str) -> Client:
        builder = self._builder().connect_timeout(timedelta(seconds=self._connect_seconds))
        if self._is_name:
            builder = builder.resolve(self._host, address.partition("%")[0], self._port)
        return build(builder)

    def _builder(self) -> ClientBuilder:
        builder = self._roots.builder()
        if self._target.ca_pem is not None:
            builder = builder.add_root_certificate_pem(self._target.ca_pem)
        pem = identity(self._target)
        if pem is not None:
            builder = builder.identity_pem(pem)
        return builder


async def _itself(host: str, _port: int) -> Sequence[str]:
    return [host]


def build(builder: ClientBuilder) -> Client:
    """Build a client that trusts the system's authorities, whatever the environment says."""
    with _without_authorities():
        return builder.build()


@contextmanager
def _without_authorities() -> Iterator[None]:
    """Hide what would replace the system's certificate authorities; the client has no option."""
    with _environment:
        hidden = {name: os.environ.pop(name) for name in _AUTHORITIES if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(hidden)
