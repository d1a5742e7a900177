"""`holdfast job run` on a topic."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any

from holdfast.deploy.local.java import spark_environment
from tests.support.job.job_process import HOLDFAST, QUICK, SECONDS, JobProcess, running
from tests.support.job.jobs import POLICY
from tests.support.kafka.fixtures import JARS
from tests.support.servers.threads import in_threads

CONNECTOR = {"HOLDFAST_KAFKA_JARS": str(JARS / "connector")}
"""Where the job finds Spark's connector."""


def words(folder: Path, servers: str, topic: str, stream: str, *options: str) -> list[str]:
    """Return the command; its checkpoint is `folder/STREAM`."""
    (folder / "policy.toml").write_text(POLICY)
    return [
        *(*HOLDFAST, "run", "--bootstrap-servers", servers, "--topic", topic),
        *("--checkpoint", str(folder / stream), "--stream", stream),
        *("--policy", str(folder / "policy.toml"), *QUICK, *options),
    ]


def run_to_end(
    folder: Path,
    dsn: str,
    servers: str,
    topic: str,
    stream: str,
    *options: str,
    secrets: Mapping[str, str],
) -> subprocess.CompletedProcess[str]:
    """Run it until it has read what is there. `secrets` are variables of its environment."""
    return subprocess.run(
        words(folder, servers, topic, stream, "--idle-timeout", "0", "--available-now", *options),
        env={**os.environ, **spark_environment(), "HOLDFAST_DSN": dsn, **CONNECTOR, **secrets},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def topic_process(
    folder: Path,
    dsn: str,
    servers: str,
    topic: str,
    *options: str,
    environment: Mapping[str, str] | None = None,
) -> AbstractContextManager[JobProcess]:
    """Start it as a service, with the stream and the checkpoint `payouts`."""
    return running(
        folder,
        dsn,
        words(folder, servers, topic, "payouts", *options),
        {**CONNECTOR, **(environment or {})},
    )


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
