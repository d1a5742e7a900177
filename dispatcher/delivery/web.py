"""`/healthz` and `/metrics`, served by their own threads, so that a hung event loop shows.

No login: nothing here is secret, neither subject nor key nor URL. Off by default.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from socket import AF_INET6
from socketserver import TCPServer, ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from holdfast.dispatcher.delivery.health import Health
from holdfast.dispatcher.delivery.settings import address
from holdfast.sink.contract.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

IDLE_SECONDS = 5.0
"""Time limit for a client to send its request."""


def app(health: Health, collector: Collector) -> "WSGIApplication":
    """Return the WSGI application: 200 when healthy, else 503 with the reasons as JSON."""
    registry = CollectorRegistry()
    registry.register(collector)
    metrics = make_wsgi_app(registry)
    checks: dict[str, Callable[[], list[str]]] = {
        "/healthz/live": health.not_live,
        "/healthz/ready": health.not_ready,
        "/healthz": lambda: health.not_live() + health.not_ready(),
    }

    def answer(environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        path, method = environ.get("PATH_INFO", ""), environ["REQUEST_METHOD"]
        if path not in {*checks, "/metrics"}:
            return _plain(start, "404 Not Found", {"error": "not found"})
        if method not in {"GET", "HEAD"}:
            return _plain(start, "405 Method Not Allowed", {"error": "only GET"})
        if path == "/metrics":
            content: Iterable[bytes] = metrics(environ, start)
            return content
        faults = checks[path]()
        status = "503 Service Unavailable" if faults else "200 OK"
        return _plain(start, status, {"ok": not faults, "faults": faults})

    return answer


@contextmanager
def served(listen: str | None, health: Health, collector: Collector) -> Iterator[None]:
    """Serve at `listen` (HOST:PORT) while the block runs; None serves nothing.

    Raises `CommandError` when the address cannot be used.
    """
    if listen is None:
        yield
        return
    host, port = address(listen)
    try:
        server = make_server(
            host, port, app(health, collector), server_class=_Server, handler_class=_Handler
        )
    except OSError as error:
        raise CommandError(
            f"cannot listen on {listen}: {error.strerror or error}. Nothing was sent; pass a free"
            " port and an address of this machine with --listen.",
            ExitCode.USAGE,
            code="cannot_listen",
        ) from None
    thread = Thread(target=server.serve_forever, name="web", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, host_and_port: tuple[str, int], handler: Any) -> None:
        if ":" in host_and_port[0]:
            self.address_family = AF_INET6
        super().__init__(host_and_port, handler)

    def server_bind(self) -> None:
        """Bind without a DNS lookup of this host's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # AF_INET*
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: clients may disconnect at any time."""


class _Handler(WSGIRequestHandler):
    timeout = IDLE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log nothing: probes come every second."""


def _plain(start: "StartResponse", status: str, content: dict[str, Any]) -> Iterable[bytes]:
    body = json.dumps(content).encode() + b"\n"
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
