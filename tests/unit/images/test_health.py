"""The health check of the images asks a real server."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from holdfast.deploy.images.health import fault
from tests.support.servers.threads import in_threads


@contextmanager
def _answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    with in_threads(server):
        yield f"http://127.0.0.1:{server.server_port}/healthz"


def _asked(url: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "holdfast.deploy.images.health", url)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_health_check_passes_if_the_answer_is_200() -> None:
    with _answering(200, b"{}") as url:
        assert _asked(url).returncode == 0


def test_health_check_fails_with_the_reason_of_the_answer() -> None:
    with _answering(503, b'{"faults": ["the database has not answered yet"]}') as url:
        done = _asked(url)
    assert done.returncode == 1
    assert "503" in done.stderr
    assert "the database has not answered yet" in done.stderr


def test_health_check_fails_without_listener_or_with_bad_address() -> None:
    assert "refused" in str(fault("http://127.0.0.1:9/healthz"))
    assert fault("no address") is not None


def test_health_check_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with _answering(200, b"{}") as url:
        assert fault(url) is None
