"""A receiver of OTLP over HTTP: it parses the protobuf of each export and keeps the spans."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.servers.threads import in_threads


@dataclass(frozen=True)
class Exported:
    """A span as it arrived; ids are in hexadecimal digits."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    links: tuple[tuple[str, str], ...]
    attributes: dict[str, Any]


@dataclass
class Collector:
    """What arrived."""

    port: int = 0
    spans: list[Exported] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def named(self, name: str) -> list[Exported]:
        """The spans of a name, in the order in which they arrived."""
        return [each for each in self.spans if each.name == name]

    def take(self, body: bytes) -> None:
        """Read one export."""
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            described = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [_read(str(described["service.name"]), each) for each in scope.spans]


def _read(service: str, span: Any) -> Exported:
    return Exported(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        tuple((each.trace_id.hex(), each.span_id.hex()) for each in span.links),
        _attributes(span.attributes),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in pairs}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Receive until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            collector.take(body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_arguments: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.port = server.server_address[1]
    with in_threads(server):
        yield collector
