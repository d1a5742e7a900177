"""The page of the stack's dashboards, and what its job reads."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_

import httpx
import pytest

from holdfast.deploy.local.ports import free_port
from holdfast.deploy.local.stack.dashboards.pages import _alert, serving
from holdfast.deploy.local.stack.input import chosen
from holdfast.deploy.local.stack.settings import Input
from tests.support.servers.threads import in_threads
from tests.support.waiting import eventually


@pytest.mark.parametrize("path", ["/", "/job.svg"])
def test_page_says_that_prometheus_does_not_answer(path: str) -> None:
    port = free_port()
    with serving(port, f"http://127.0.0.1:{free_port()}"):
        answer = httpx.get(f"http://127.0.0.1:{port}{path}")
    assert answer.status_code == httpx.codes.BAD_GATEWAY
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b"{}"], ids=["no JSON", "a list", "without data"]
)
def test_page_says_that_what_answers_is_no_prometheus(body: bytes) -> None:
    port = free_port()
    with other_server(body) as address, serving(port, address):
        answer = httpx.get(f"http://127.0.0.1:{port}/")
    assert answer.status_code == httpx.codes.BAD_GATEWAY


def test_browser_that_leaves_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    port, asked, goes_on = free_port(), Event(), Event()
    with other_server(b"{}", asked, goes_on) as address, serving(port, address):
        with socket.create_connection(("127.0.0.1", port)) as browser:
            browser.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert asked.wait(60)
            # Closed like this, it is reset.
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        goes_on.set()
        eventually(lambda: not any("process_request_thread" in each.name for each in enumerate_()))
    assert capfd.readouterr().err == ""


@contextmanager
def other_server(
    body: bytes, asked: Event | None = None, goes_on: Event | None = None
) -> Iterator[str]:
    """A server that is no Prometheus, and how one asks it; it waits for `goes_on` if given."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if asked is not None and goes_on is not None:
                asked.set()
                goes_on.wait(60)
            self.send_response(httpx.codes.OK)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Stay silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    with in_threads(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("path", ["/missing.svg", "/job.svg/", "/prometheus.yml"])
def test_page_has_no_other_paths(path: str) -> None:
    port = free_port()
    with serving(port, f"http://127.0.0.1:{free_port()}"):
        answer = httpx.get(f"http://127.0.0.1:{port}{path}", follow_redirects=False)
    assert answer.status_code == httpx.codes.NOT_FOUND


def test_text_of_an_alert_is_escaped() -> None:
    alert = {
        "state": "firing",
        "labels": {"alertname": "HoldfastEntryDead"},
        "annotations": {"summary": "<script>x</script>", "run": "holdfast dead list"},
    }
    row = _alert(alert)
    assert "<script>" not in row
    assert 'class="firing"' in row


def test_events_are_files_without_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert chosen(Input.AUTO) is Input.FILES
    assert chosen(Input.TOPIC) is Input.TOPIC
