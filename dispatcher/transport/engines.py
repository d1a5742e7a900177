"""Which engine sends: the fastest that can be used here, or the one that was named."""

from pathlib import Path
from typing import Literal

from dispatcher.ports import Transport
from dispatcher.transport.httpx_engine import HttpxTransport

EngineName = Literal["auto", "httpx", "pyreqwest"]


def open_transport(name: EngineName = "auto", ca_file: Path | None = None) -> Transport:
    """Open the engine `name`; `auto` is pyreqwest where it can be used, and else httpx.

    `ca_file` holds further certificate authorities to trust, as PEM. Raises `OSError` when it
    cannot be read and `UnusablePemError` when it holds none. An engine that was named and cannot
    be used raises `ImportError` or `NoAuthoritiesError`.
    """
    if name == "httpx":
        return HttpxTransport(ca_file)
    try:
        # A wheel with a binary, which not every platform has.
        from dispatcher.transport.pinned_clients import NoAuthoritiesError  # noqa: PLC0415
        from dispatcher.transport.pyreqwest_engine import PyreqwestTransport  # noqa: PLC0415
    except ImportError:
        if name == "pyreqwest":
            raise
        return HttpxTransport(ca_file)
    try:
        return PyreqwestTransport(ca_file)
    except NoAuthoritiesError:
        if name == "pyreqwest":
            raise
        return HttpxTransport(ca_file)  # which brings authorities of its own
