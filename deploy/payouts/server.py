"""Runs the application: binds the socket, reports when ready, shuts down gracefully."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from holdfast.sink.contract.exits import CommandError

STOP_SECONDS_MAX = 10
KEEP_ALIVE_SECONDS = 60
REQUESTS_MAX = 512
BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Bind the port (0: any free port) before anything else starts; raises `CommandError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = {
            errno.EADDRINUSE: f"port {port} on {host} is already in use",
            errno.EADDRNOTAVAIL: f"{host} is not an address of this machine",
            errno.EACCES: f"this user may not listen on port {port}",
        }.get(error.errno or 0, f"cannot listen on {host} port {port} ({error.strerror})")
        raise CommandError(
            f"{why}. Nothing was started; choose another --port (0: any free port) or --host.",
            code="listen_failed",
        ) from None


def url_of(listener: socket.socket) -> str:
    """Return the base URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(app: Starlette, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish the running requests.

    If `on_ready` raises `CommandError`, the service shuts down gracefully and the error is raised.
    """
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        limit_concurrency=REQUESTS_MAX,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS_MAX,
    )
    server = _Server(config, on_ready)
    server.run(sockets=[listener])
    if server.failure is not None:
        raise server.failure


def write_port(path: Path, listener: socket.socket) -> None:
    """Write the port to a file atomically, for another process to read."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(f"{listener.getsockname()[1]}\n", encoding="ascii")
        draft.replace(path)
    except OSError as error:
        raise CommandError(
            f"the port file {path} cannot be written ({error.strerror}). The service was stopped.",
            code="port_file_unwritable",
        ) from None


class _Server(uvicorn.Server):
    """uvicorn that reports when it is ready and ends with exit code 0 on a signal."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self.failure: CommandError | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        try:
            self._on_ready()
        except CommandError as error:
            self.failure = error
            self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on a signal without raising it again, because a requested stop is not a failure."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
