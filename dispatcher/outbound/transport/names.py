"""Names, resolved by c-ares: no thread waits for a name server.

`getaddrinfo` of the C library holds a thread for as long as a name server is silent, and a loop has
few of them: two on uvloop. So a handful of slow names would keep every other endpoint's name from
being resolved. Here all look-ups share one thread and none waits for another. As by the C library,
`/etc/hosts`, `resolv.conf` with its search domains and `nsswitch.conf` decide, and they are read
again when they change. Other modules of the name service switch (LDAP, mDNS) are not asked.
"""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import Any

TRIES = 6
"""How often a question is sent. c-ares waits a quarter of a second for a server that is fast for
others, then doubles that, so a name that takes seconds needs several; attempts have own limits."""

_SERVER_FAULTS = (3, 6)
"""`ARES_ESERVFAIL` and `ARES_EREFUSED`."""


async def system_addresses(host: str, port: int) -> Sequence[str]:
    """Return the addresses of `host`, in the order of RFC 6724.

    Raises `OSError` if it has none, or no name server answers in the time of `resolv.conf`.
    """
    numeric = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    with suppress(socket.gaierror):
        return _texts(numeric(flags=socket.AI_NUMERICHOST))
    channel = _channel()
    if channel is None:
        loop = asyncio.get_running_loop()
        return _texts(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    answer, fault = await _query(channel, host, port)
    if fault in _SERVER_FAULTS and not host.endswith("."):
        # c-ares ends its search where a search domain's server fails. The C library asks further.
        answer, fault = await _query(channel, f"{host}.", port)
    if fault is not None:
        raise OSError(_ares().errno.strerror(fault))
    return [each.addr[0].decode() for each in answer.nodes]


async def _query(channel: Any, host: str, port: int) -> tuple[Any, int | None]:
    """Return the answer of c-ares, and its fault if there is one."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[tuple[Any, int | None]] = loop.create_future()

    def on_answer(answer: Any, fault: int | None) -> None:  # in the thread of c-ares
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(_settle, waiting, (answer, fault))

    try:
        channel.getaddrinfo(host, port, type=socket.SOCK_STREAM, callback=on_answer)
    except _ares().AresError as error:  # not a host name
        raise OSError(str(error.args[-1])) from None
    return await waiting


@cache
def _ares() -> Any:
    """Return pycares; None on a platform without a wheel of it."""
    with suppress(ModuleNotFoundError):
        return import_module("pycares")
    return None


@cache
def _channel() -> Any:
    """Return the channel of this process; None where the C library has to do."""
    ares = _ares()
    if ares is None:
        return None
    try:
        return ares.Channel(tries=TRIES)
    except ares.AresError:  # no inotify instance is left to watch the settings with
        return None


def _settle(
    waiting: asyncio.Future[tuple[Any, int | None]], answer: tuple[Any, int | None]
) -> None:
    if not waiting.done():  # abandoned, if it is
        waiting.set_result(answer)


def _texts(infos: Sequence[Any]) -> list[str]:
    return [str(info[4][0]) for info in infos]
