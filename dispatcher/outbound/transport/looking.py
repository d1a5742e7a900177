"""How far one gets to a target, step by step and timed; no byte of a request is written.

The engines say that connecting failed, not where. So this goes the way alone: the resolver, the
same address guard, a connection to an address that it gave out, the handshake.
"""

import asyncio
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress

import httpx

from dispatcher.outbound.endpoint_probe import DONE, FAILED, Reached
from dispatcher.outbound.target import Target
from dispatcher.outbound.transport.certificates import extend, trust
from dispatcher.outbound.transport.guard import (
    AddressRefusedError,
    Guard,
    Resolve,
    ResolveError,
    system_addresses,
)
from dispatcher.shared.text import one_line

_PORTS = {"http": 80, "https": 443}


async def look(
    target: Target, resolve: Resolve = system_addresses, *, ca_pem: bytes | None = None
) -> list[Reached]:
    """Return the steps up to the first that failed; faults of the other side are steps.

    `ca_pem` holds further certificate authorities to trust. Raises `ValueError` where the URL or a
    certificate cannot be used at all.
    """
    try:
        url = httpx.URL(target.url)
    except httpx.InvalidURL as error:
        raise ValueError(one_line(str(error))) from None
    tls = _tls(target, ca_pem) if target.encrypted else None
    host, port = url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme]
    steps: list[Reached] = []
    found = await _resolved(steps, resolve, host, port, target.connect_timeout)
    addresses = await _judged(steps, target, host, port, found) if found else []
    if addresses:
        await _connected(steps, addresses, host, port, target.connect_timeout, tls)
    return steps


async def _resolved(
    steps: list[Reached], resolve: Resolve, host: str, port: int, seconds: float
) -> Sequence[str]:
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            found = list(dict.fromkeys(await resolve(host, port)))
    except TimeoutError:
        error, found = f"no answer within {seconds:g} s", []
    except (OSError, UnicodeError) as fault:
        error, found = _said(fault), []
    else:
        error = "it has no address"
    detail = f"{host} is {', '.join(found)}" if found else f"{host}: {error}"
    steps.append(Reached("dns", DONE if found else FAILED, detail, _ms(began)))
    return found


async def _judged(
    steps: list[Reached], target: Target, host: str, port: int, found: Sequence[str]
) -> Sequence[str]:
    async def known(_host: str, _port: int) -> Sequence[str]:
        return found

    guard = Guard(target.allowed, encrypted=target.encrypted, resolve=known)
    try:
        permitted = await guard.addresses(host, port, None)
    except (AddressRefusedError, ResolveError) as error:
        steps.append(Reached("address", FAILED, one_line(str(error))))
        return []
    steps.append(Reached("address", DONE, f"{', '.join(permitted)} may be connected to"))
    return permitted


async def _connected(
    steps: list[Reached],
    addresses: Sequence[str],
    host: str,
    port: int,
    seconds: float,
    tls: ssl.SSLContext | None,
) -> None:
    faults: list[str] = []
    for address in addresses:
        began = time.monotonic()
        try:
            # An address that swallows packets leaves a share of the time to those behind it.
            async with asyncio.timeout(seconds / len(addresses)):
                _, writer = await asyncio.open_connection(address, port)
        except TimeoutError:
            faults.append(f"{address} port {port}: no answer in time")
            continue
        except OSError as error:
            faults.append(f"{address} port {port}: {_said(error)}")
            continue
        steps.append(Reached("connect", DONE, f"{address} port {port}", _ms(began)))
        try:
            if tls is not None:
                steps.append(await _encrypted(writer, tls, host, seconds))
        finally:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()
        return
    steps.append(Reached("connect", FAILED, "; ".join(faults)))


async def _encrypted(
    writer: asyncio.StreamWriter, tls: ssl.SSLContext, host: str, seconds: float
) -> Reached:
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            await writer.start_tls(tls, server_hostname=host)
    except TimeoutError:
        return Reached("tls", FAILED, f"no handshake within {seconds:g} s", _ms(began))
    except (OSError, ValueError) as error:
        return Reached("tls", FAILED, _said(error), _ms(began))
    spoken = writer.get_extra_info("ssl_object")
    until = (spoken.getpeercert() or {}).get("notAfter", "?")
    return Reached("tls", DONE, f"{spoken.version()}, certificate until {until}", _ms(began))


def _said(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return one_line(error.verify_message)
        case OSError() if error.strerror and not isinstance(error, ssl.SSLError):
            return one_line(error.strerror)
        case _:
            return one_line(str(error) or type(error).__name__)


def _ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)


def _tls(target: Target, ca_pem: bytes | None) -> ssl.SSLContext:
    context = httpx.create_ssl_context(trust_env=False)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_pem is not None:
        trust(context, ca_pem)
    extend(context, target)
    return context
