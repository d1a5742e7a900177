"""Kafka on this machine, and the page of the stack."""

import hashlib
import json
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event
from threading import enumerate as enumerate_

import httpx
import pytest

from holdfast.deploy.local import cli_demo
from holdfast.deploy.local.demo import topic_scenario
from holdfast.deploy.local.kafka import cli, jars, topics
from holdfast.deploy.local.ports import free_port
from holdfast.deploy.local.stack.dashboards import _alert, serving
from holdfast.deploy.local.stack.run import chosen_input
from holdfast.deploy.local.stack.settings import Input
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.servers.threads import in_threads
from tests.support.waiting import eventually


@pytest.mark.parametrize("kind", jars.KINDS)
def test_every_jar_is_pinned_by_coordinates_and_checksum(kind: str) -> None:
    pinned = jars.pins(kind)
    assert len({pin.name for pin in pinned}) == len(pinned) == {"connector": 5, "broker": 45}[kind]
    assert all(len(bytes.fromhex(pin.sha256)) == 32 for pin in pinned)
    assert all(pin.group and pin.version[0].isdigit() for pin in pinned)


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> jars.Pin:
    pin = jars.Pin("org.example", "example", "1.0", hashlib.sha256(b"right").hexdigest())
    monkeypatch.setattr(jars, "pins", lambda _: [pin])
    return pin


def _fetching(content: bytes | None) -> jars._Fetch:
    def fetch(wanted: list[jars.Pin], folder: Path) -> str | None:
        if content is None:
            return "it is away"
        (folder / wanted[0].name).write_bytes(content)
        return None

    return fetch


@pytest.mark.parametrize("wrong", [None, b"wrong"])
def test_what_maven_cannot_get_or_gets_wrong_comes_by_ivy(
    pinned: jars.Pin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrong: bytes | None
) -> None:
    monkeypatch.setattr(jars, "_by_maven", _fetching(wrong))
    monkeypatch.setattr(jars, "_by_ivy", _fetching(b"right"))
    assert jars.stage("connector", tmp_path) is True
    assert [file.name for file in tmp_path.rglob("*")] == ["connector", pinned.name]
    monkeypatch.setattr(jars, "_by_ivy", _fetching(None))
    assert jars.stage("connector", tmp_path) is False
    assert jars.staged("connector", tmp_path) == tmp_path / "connector"


@pytest.mark.usefixtures("pinned")
def test_without_a_way_nothing_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "connector").mkdir()
    (tmp_path / "connector" / "example-1.0.jar").write_bytes(b"changed")
    monkeypatch.setattr(jars, "_by_maven", _fetching(None))
    monkeypatch.setattr(jars, "_by_ivy", _fetching(b"also wrong"))
    with pytest.raises(CommandError) as caught:
        jars.stage("connector", tmp_path)
    reply = str(caught.value)
    assert "\n" not in reply
    for part in (
        "org.example:example:1.0",
        "Maven: it is away",
        "another SHA-256",
        "connector.txt",
    ):
        assert part in reply
    assert [file.read_bytes() for file in tmp_path.rglob("*.jar")] == [b"changed"]
    with pytest.raises(CommandError, match="make kafka-jars"):
        jars.staged("connector", tmp_path)


def test_download_lists_exact_jars_without_dependencies() -> None:
    (first, *_) = jars.pins("connector")
    pom = jars._filled(jars._POM, jars._POM_DEPENDENCY, [first])
    assert "<version>4.2.0</version>" in pom
    assert pom.count("<artifactId>*</artifactId>") == 1
    ivy = jars._filled(jars._IVY, jars._IVY_DEPENDENCY, [first])
    assert 'rev="4.2.0" transitive="false"' in ivy


def test_certificate_that_java_does_not_trust_is_called_so() -> None:
    message = "module not found: x#y;1\n\tServer access error (PKIX path building failed: ...)"
    reply = jars._failure([sys.executable, "-c", f"print({message!r}); raise SystemExit(1)"])
    assert reply
    assert "trustStore" in reply
    assert "not found" not in reply


def test_line_ends_only_with_a_line_feed(tmp_path: Path) -> None:
    lines = [json.dumps({"note": f"a{end}b"}, ensure_ascii=False) for end in "\u2028\u2029\x85"]
    (tmp_path / "events").write_bytes("\r\n".join([*lines, " ", "{}\n"]).encode())
    assert cli._lines(tmp_path / "events") == [*lines, "{}"]


def test_spaces_in_json_do_not_move_a_merchant() -> None:
    for merchant in ("m_1", 'm"2', "\u00e9"):
        event = {"event_id": "e", "merchant_id": merchant}
        dense = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
        wide = [json.dumps(event | {"event_id": str(at)}, indent=1) for at in range(8)]
        assert {topics.partition_of(line, 97) for line in wide} == {topics.partition_of(dense, 97)}
    names = {topics.partition_of(line, 97) for line in ("[1]", "hello", '{"merchant_id":7}', "5")}
    assert len(names) > 1


def test_too_large_line_and_full_queue_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "SECONDS", 0.1)
    writer = topics.Writer("127.0.0.1:9")
    with pytest.raises(CommandError, match="a record of 2000000 bytes cannot be written to pay"):
        writer.write("pay", "x" * 2_000_000)

    def fill() -> None:
        for _ in range(200_000):
            writer.write("pay", "{}")

    with pytest.raises(CommandError, match="the broker took no record of pay"):
        fill()


def _checkpoint(folder: Path, ends: Sequence[dict[str, int]], *, recorded: int) -> Path:
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for batch_id, end in enumerate(ends):
        lines = ["v1", '{"batchWatermarkMs":0}', json.dumps({"events": end}), "-"]
        (folder / "offsets" / str(batch_id)).write_text("\n".join(lines))
        if batch_id < recorded:
            (folder / "commits" / str(batch_id)).write_text("v1")
    return folder


def test_batches_are_those_that_spark_recorded(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path, [{"0": 1}, {"0": 1, "1": 2}, {"0": 5, "1": 2}], recorded=2)
    ends = topic_scenario.planned_ends(folder, "events")
    assert ends == [{0: 1}, {0: 1, 1: 2}]
    records = {0: ["a", "d"], 1: ["b", "c"]}
    assert topic_scenario.batches([*ends, ends[-1]], records) == [["a"], ["b", "c"], []]


def test_batch_that_ends_before_the_last_one_is_reported() -> None:
    for behind in ({0: 1}, {1: 2}):
        with pytest.raises(CommandError, match="batch 1 ends before"):
            topic_scenario.batches([{0: 2}, behind], {0: ["a", "b"], 1: ["c", "d"]})


def test_checkpoint_without_its_first_batches_is_reported(tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path, [{"0": 1}, {"0": 2}], recorded=2)
    (folder / "commits" / "0").unlink()
    with pytest.raises(CommandError, match="no longer has all"):
        topic_scenario.planned_ends(folder, "events")


@pytest.mark.parametrize("command", [cli.kafka, cli_demo.kafka])
def test_command_without_the_kafka_client_names_its_extra(
    command: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(CommandError, match=r"holdfast\[kafka\]") as refused:
        command()
    assert refused.value.exit_code is ExitCode.USAGE
    assert chosen_input(Input.AUTO) is Input.FILES


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
        "annotations": {"summary": "<script>x</script>", "run": "holdfast dead-letter list"},
    }
    row = _alert(alert)
    assert "<script>" not in row
    assert 'class="firing"' in row


def test_events_are_files_without_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert chosen_input(Input.AUTO) is Input.FILES
    assert chosen_input(Input.TOPIC) is Input.TOPIC
