"""Which engine sends: the fastest that can be used here, or the one that was named."""

from pathlib import Path
from typing import Literal

from dispatcher.outbound.transport.httpx_engine import HttpxTransport
from dispatcher.outbound.transport.transport import Transport

EngineName = Literal["auto", "asyncio", "httpx"]


def open_transport(name: EngineName = "auto", ca_file: Path | None = None) -> Transport:
    """Open the engine `name`; `auto` is asyncio where its parser is installed, and else httpx.

    `ca_file` holds further certificate authorities to trust, as PEM. Raises `OSError` when it
    cannot be read and `UnusablePemError` when it holds none. Where asyncio was named and its parser
    is missing, `ImportError`.
    """
    if name == "httpx":
        return HttpxTransport(ca_file)
    try:
        # A wheel with a binary, which not every platform has.
        from dispatcher.outbound.transport.asyncio_engine import AsyncioTransport  # noqa: PLC0415
    except ImportError:
        if name == "asyncio":
            raise
        return HttpxTransport(ca_file)
    return AsyncioTransport(ca_file)
