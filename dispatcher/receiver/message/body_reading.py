"""Read a request's body within limits, before anything is known of its sender."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from dispatcher.receiver.message.problem import Problem
from sink.contract.envelope import BODY_BYTES_MAX

BODY_SECONDS_MAX = 10.0


class SenderLeft(Exception):
    """The sender closed the connection half way: nobody is left to answer."""


async def read_body(
    headers: Iterable[tuple[bytes, bytes]],
    chunks: AsyncIterator[bytes],
    *,
    bytes_max: int = BODY_BYTES_MAX,
    seconds_max: float = BODY_SECONDS_MAX,
) -> bytes | Problem:
    """Return the body, or the problem that ended the reading: 413 too large, 408 too slow.

    What `chunks` raises goes through (`SenderLeft`, a framework's own).
    """
    if declared_bytes(headers) > bytes_max:
        return too_large(bytes_max)
    body = bytearray()
    try:
        async with asyncio.timeout(seconds_max):
            async for chunk in chunks:
                body += chunk
                if len(body) > bytes_max:
                    return too_large(bytes_max)
    except TimeoutError:
        return Problem(408, "slow_body", f"the body was not complete after {seconds_max:g} s")
    return bytes(body)


def too_large(bytes_max: int) -> Problem:
    """Return the problem of a body of more than `bytes_max` bytes."""
    return Problem(413, "body_too_large", f"a body has at most {bytes_max} bytes")


def declared_bytes(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Return the length that the sender declares; bytes that arrive are counted all the same."""
    values = [value for name, value in headers if name.lower() == b"content-length"]
    return max((int(value[:20]) for value in values if value.isdigit()), default=0)
