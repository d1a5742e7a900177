"""A real HTTP server that answers as a schema registry with Confluent's API."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event
from typing import Any

from tests.support.servers.threads import in_threads

EVENT = {"type": "record", "name": "Event", "fields": [{"name": "event_id", "type": "string"}]}
_UNKNOWN = (404, {"error_code": 40403, "message": "Schema not found"})


class RegistryServer(ThreadingHTTPServer):
    """A registry: `answers` by path, and the requests that arrived."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, Any]] = {
            "/schemas/types": (200, ["AVRO", "JSON"]),
            "/schemas/ids/7": (200, {"schema": json.dumps(EVENT)}),
            "/schemas/ids/8": (200, {"schema": "syntax = ...", "schemaType": "PROTOBUF"}),
            "/schemas/ids/9": (200, {"schema": '"string"'}),
        }
        self.seen: list[tuple[str, str | None]] = []
        self.silent = Event()
        self.location: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))
        status, content = self.server.answers.get(self.path, _UNKNOWN)
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.silent.is_set():
            # Until the client has gone.
            self.rfile.read(1)
            return
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """Serve; it is stopped at the end."""
    server = RegistryServer()
    with in_threads(server):
        yield server
