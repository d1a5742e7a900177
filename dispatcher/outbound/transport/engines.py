"""Which engine delivers: asyncio, or httpx where that cannot be installed or was named."""

from pathlib import Path

from holdfast.dispatcher.outbound.transport.httpx_engine import HttpxTransport
from holdfast.dispatcher.outbound.transport.transport import EngineName, Transport


def open_transport(name: EngineName = "auto", ca_file: Path | None = None) -> Transport:
    """Open the engine `name`; `auto` is asyncio where its parser is installed, otherwise httpx.

    `ca_file` holds further certificate authorities to trust, as PEM. Raises `OSError` when it
    cannot be read, `UnusablePemError` when it holds none, and `ImportError` when asyncio was named
    and its parser is missing.
    """
    if name == "httpx":
        return HttpxTransport(ca_file)
    try:
        # Its parser, httptools, is a compiled wheel, which not every platform has.
        from holdfast.dispatcher.outbound.transport.asyncio_engine import AsyncioTransport  # noqa: PLC0415
    except ImportError:
        if name == "asyncio":
            raise
        return HttpxTransport(ca_file)
    return AsyncioTransport(ca_file)
