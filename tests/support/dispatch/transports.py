"""The engines of the transport, and how a test sends with each of them.

`pytestmark = each_engine` runs every test of a file with each; the tests take `send`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from holdfast.dispatcher.outbound.request import Request
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport
from holdfast.dispatcher.outbound.transport.guard import Resolve
from holdfast.dispatcher.outbound.transport.httpx_engine import HttpxTransport
from holdfast.dispatcher.outbound.transport.names import system_addresses
from holdfast.dispatcher.outbound.transport.transport import Progress, Transport
from holdfast.dispatcher.shared.outcome import Answer
from tests.support.dispatch.sender import body

Found = TypeVar("Found")
LOOPBACK = (ip_network("127.0.0.0/8"),)
CONTENT = body("m_482")
REQUEST = Request(
    (("content-type", "application/json"), ("user-agent", "holdfast/0"), ("webhook-id", "hf_0")),
    CONTENT,
)


class Sending:
    """Sends requests one after another over one transport; returns the only answer, or all."""

    def __init__(
        self,
        engine: Callable[[Path | None, Resolve], Transport],
        loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        self._engine = engine
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        with asyncio.Runner(loop_factory=self._loop) as runner:
            return runner.run(work)

    def open(self, ca_file: Path | None = None, resolve: Resolve = system_addresses) -> Transport:
        return self._engine(ca_file, resolve)

    def __call__(self, url: str, **options: Any) -> Answer:
        (answer,) = self.often(url, 1, **options)
        return answer

    def often(
        self,
        url: str,
        times: int,
        *,
        total: float = 10,
        ca_file: Path | None = None,
        resolve: Resolve = system_addresses,
        **columns: Any,
    ) -> list[Answer]:
        target = replace(Target(1, url, LOOPBACK, min(5, total), total), **columns)

        async def work() -> list[Answer]:
            transport = self.open(ca_file, resolve)
            try:
                return [await transport.send(target, REQUEST, Progress()) for _ in range(times)]
            finally:
                await transport.close()

        return self.run(work())

    def fault(self, target: Target) -> str | None:
        async def work() -> str | None:
            transport = self.open()
            try:
                return transport.fault(target)
            finally:
                await transport.close()

        return self.run(work())


ENGINES: dict[str, Callable[[Path | None, Resolve], Transport]] = {
    "httpx": HttpxTransport,
    "asyncio": AsyncioTransport,
}
_HTTPX = pytest.param(Sending(HttpxTransport), id="httpx")
_ASYNCIO = pytest.param(Sending(AsyncioTransport), id="asyncio")
_UVLOOP = pytest.param(Sending(AsyncioTransport, uvloop.new_event_loop), id="asyncio-uvloop")

each_engine = pytest.mark.parametrize("send", [_HTTPX, _ASYNCIO, _UVLOOP])
"""The asyncio engine on both loops, whose transports differ."""

each_parser = pytest.mark.parametrize("send", [_HTTPX, _UVLOOP])
"""For what is sent and read, which is the same on both loops: a dispatcher's loop alone."""


def answering(*answers: Sequence[str]) -> Resolve:
    """A resolver with these answers, one after another, the last one for ever."""
    left = list(answers)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve
