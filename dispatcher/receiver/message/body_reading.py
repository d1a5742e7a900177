"""Reads a request's body within limits, before its sender is authenticated."""

import sys
from asyncio import TimeoutError as AsyncTimeoutError
from collections.abc import AsyncIterator, Iterable

from holdfast.receiver.message.problem import Problem
from holdfast.sink.contract.envelope import BODY_BYTES_MAX

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout

BODY_SECONDS_MAX = 10.0


class SenderLeft(Exception):
    """The sender disconnected before the end of the body, so no answer is possible."""


async def read_body(
    headers: Iterable[tuple[bytes, bytes]],
    chunks: AsyncIterator[bytes],
    *,
    bytes_max: int = BODY_BYTES_MAX,
    seconds_max: float = BODY_SECONDS_MAX,
) -> bytes | Problem:
    """Return the body, or the problem with it: 413 too large, 408 too slow.

    Exceptions of `chunks` propagate (`SenderLeft`, or a framework's own).
    """
    if declared_bytes(headers) > bytes_max:
        return too_large(bytes_max)
    body = bytearray()
    try:
        async with timeout(seconds_max):
            async for chunk in chunks:
                body += chunk
                if len(body) > bytes_max:
                    return too_large(bytes_max)
    except AsyncTimeoutError:
        return Problem(408, "slow_body", f"the body was incomplete after {seconds_max:g} s")
    return bytes(body)


def too_large(bytes_max: int) -> Problem:
    """Return the problem of a body larger than `bytes_max` bytes."""
    return Problem(413, "body_too_large", f"the limit for a body is {bytes_max} bytes")


def declared_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the declared length; the bytes that arrive are counted anyway."""
    values = [value for name, value in headers if name.lower() == b"content-length"]
    return max((int(value[:20]) for value in values if value.isdigit()), default=0)
