"""Whether a target can be reached, step by step and timed; no byte of a request is written.

The engines report that connecting failed, not at which step. The probe makes the steps itself:
resolver, the same address guard, TCP connection to a permitted address, TLS handshake.
"""

import asyncio
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress

import httpx

from holdfast.dispatcher.outbound.endpoint_probe import DONE, FAILED, Reached
from holdfast.dispatcher.outbound.target import Target
from holdfast.dispatcher.outbound.transport.certificates import bundled_authorities, extend
from holdfast.dispatcher.outbound.transport.guard import (
    AddressRefusedError,
    Guard,
    Resolve,
    host_and_port,
)
from holdfast.dispatcher.outbound.transport.names import system_addresses
from holdfast.dispatcher.shared.text import one_line


async def probe(
    target: Target, resolve: Resolve = system_addresses, *, ca_pem: bytes | None = None
) -> list[Reached]:
    """Return the steps up to the first that failed; a fault of the other side is a failed step.

    `ca_pem` holds further certificate authorities to trust. Raises `ValueError` where the URL or a
    certificate cannot be used at all.
    """
    try:
        url = httpx.URL(target.url)
    except httpx.InvalidURL as error:
        raise ValueError(one_line(str(error))) from None
    tls = extend(bundled_authorities(ca_pem), target) if target.encrypted else None
    host, port = host_and_port(url)
    steps: list[Reached] = []
    resolved = await _resolved(steps, resolve, host, port, target.connect_timeout)
    addresses = _judged(steps, target, resolved) if resolved else []
    if addresses:
        await _connected(steps, addresses, host, port, target.connect_timeout, tls)
    return steps


async def _resolved(
    steps: list[Reached], resolve: Resolve, host: str, port: int, seconds: float
) -> Sequence[str]:
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            addresses = list(dict.fromkeys(await resolve(host, port)))
    except TimeoutError:
        error, addresses = f"no answer within {seconds:g} s", []
    except (OSError, UnicodeError) as fault:
        error, addresses = _reason(fault), []
    else:
        error = "it has no address"
    detail = f"{host} is {', '.join(addresses)}" if addresses else f"{host}: {error}"
    steps.append(Reached("dns", DONE if addresses else FAILED, detail, _ms(began)))
    return addresses


def _judged(steps: list[Reached], target: Target, addresses: Sequence[str]) -> Sequence[str]:
    try:
        permitted = Guard(target.allowed, encrypted=target.encrypted).permitted(addresses)
    except AddressRefusedError as error:
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
            # An address that drops packets must leave time for the addresses after it.
            async with asyncio.timeout(seconds / len(addresses)):
                _, writer = await asyncio.open_connection(address, port)
        except TimeoutError:
            faults.append(f"{address} port {port}: no answer in time")
            continue
        except OSError as error:
            faults.append(f"{address} port {port}: {_reason(error)}")
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
        return Reached("tls", FAILED, _reason(error), _ms(began))
    spoken = writer.get_extra_info("ssl_object")
    until = (spoken.getpeercert() or {}).get("notAfter", "?")
    return Reached("tls", DONE, f"{spoken.version()}, certificate until {until}", _ms(began))


def _reason(error: Exception) -> str:
    match error:
        case ssl.SSLCertVerificationError():
            return one_line(error.verify_message)
        case OSError() if error.strerror and not isinstance(error, ssl.SSLError):
            return one_line(error.strerror)
        case _:
            return one_line(str(error) or type(error).__name__)


def _ms(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)
