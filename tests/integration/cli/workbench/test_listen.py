"""`holdfast listen`: it verifies, misbehaves as asked, and tells at the end what it can know."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from holdfast.dispatcher.cli.main import application
from holdfast.dispatcher.workbench.listen.misbehaviour import Cut, Misbehaviour
from holdfast.dispatcher.workbench.listen.server import Server
from holdfast.receiver import Secret, receipt_is_genuine
from holdfast.sink.contract.envelope import BODY_BYTES_MAX
from holdfast.sink.contract.exits import CommandError, ExitCode
from holdfast.sink.contract.wire import ReceiptOutcome
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.listening import listening
from tests.support.dispatch.sender import (
    KEY_BYTES,
    OTHER_KEY_BYTES,
    Sent,
    body,
    headers,
    key_of,
    secret_text,
)
from tests.support.job.decisions import Decisions
from tests.support.waiting import eventually
from tests.support.world import World

pytestmark = pytest.mark.rest


REFERENCE = ("--secret-ref", "env:TEST_SECRET")


def block() -> Sent:
    """A delivery that is signed now: it is too old for a receiver after five minutes."""
    return Sent.of("m_1", "block", 1)


def invoke(*arguments: str) -> Result:
    """Run the command in this process, for what is decided before it listens."""
    return CliRunner().invoke(
        application([]), ["listen", *arguments], env={"TEST_SECRET": secret_text()}
    )


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The command in a process of its own, with its ready line."""
    command = [
        sys.executable,
        "-m",
        "holdfast.dispatcher.cli.main",
        "listen",
        "--port",
        "0",
        "--json",
    ]
    with subprocess.Popen(
        [*command, *REFERENCE, *arguments],
        env=os.environ | {"TEST_SECRET": secret_text()},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, json.loads(process.stdout.readline())
        finally:
            if process.poll() is None:
                process.kill()


def on_the_wire() -> bytes:
    """A whole request, for a test that has the socket."""
    content = body("m_1", "block", 1)
    fields = headers(content) | {"content-length": str(len(content))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /webhooks HTTP/1.1\r\n{lines}\r\n".encode() + content


def test_deliveries_are_applied_once_and_answered_with_proof() -> None:
    with listening() as receiver:
        answers = [receiver.send(block()) for _ in range(2)]
        other = Sent.of("m_1", "block", 1, data={"merchant_id": "m_1"})
        late = [receiver.send(Sent.of("m_1", "block", n)) for n in (4, 2, 2)]
        answers += [receiver.send(other), *late]
    data = [(answer.status_code, answer.json()["outcome"]) for answer in answers]
    assert data == [
        (200, "applied"),
        (200, "duplicate"),
        (422, "conflict"),
        (200, "applied"),
        (200, "stale"),
        (200, "stale"),
    ]
    shown = answers[1].json()
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert receipt_is_genuine(
        Secret(KEY_BYTES),
        shown["key"],
        ReceiptOutcome(shown["outcome"]),
        shown["applied_at"],
        shown["receipt"],
    )
    report = receiver.report()
    assert (report.duplicated, report.conflicting, report.out_of_order) == (1, 1, 1)
    assert receiver.report(key_of("m_1", 4), key_of("m_1", 9)).lost == 1


def test_what_is_no_delivery_is_refused_with_the_reason() -> None:
    forged = Sent(block().content, headers(block().content, key=OTHER_KEY_BYTES))
    large = b"x" * (BODY_BYTES_MAX + 1)
    with listening() as receiver:
        client, url = receiver.client, receiver.url
        answers = [
            receiver.send(forged),
            client.post(url, content=large),
            client.post(url, content=iter([b"chunks"])),
            client.post(url.replace("webhooks", "elsewhere"), content=b""),
            client.get(url),
            receiver.send(block()),
        ]
    assert [answer.status_code for answer in answers] == [401, 413, 411, 404, 405, 200]
    assert [answer.json().get("reason") for answer in answers[:5]] == [
        "no_match",
        "body_too_large",
        "length_required",
        "not_found",
        "method_not_allowed",
    ]
    report = receiver.report()
    assert report.refused == {"no_match": 1, "body_too_large": 1, "length_required": 1}
    assert report.degraded


def test_a_connection_is_cut_after_the_delivery_was_applied() -> None:
    with listening(Misbehaviour(cut=Cut(count=1))) as receiver:
        with pytest.raises(httpx.RemoteProtocolError):
            receiver.send(block())
        assert receiver.report().owed == 1
        assert receiver.send(block()).json()["outcome"] == "duplicate"
        assert receiver.send(Sent.of("m_1", "release", 2)).json()["outcome"] == "applied"
    report = receiver.report()
    assert (report.attempted, report.acknowledged, report.applied) == (3, 2, 2)
    assert (report.cut_on_purpose, report.duplicated, report.degraded) == (1, 1, False)


@pytest.mark.parametrize("status", [500, 429, 302])
def test_wrong_status_applies_nothing_and_may_ask_for_time(status: int) -> None:
    asked = Misbehaviour(status=status, retry_after_seconds=7)
    with listening(asked) as receiver:
        answer = receiver.send(block())
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    assert receiver.report().applied == 0
    assert receiver.heard[0].outcome == "failed"


def test_accepting_status_applies_and_proves_nothing() -> None:
    with listening(Misbehaviour(status=204)) as receiver:
        answers = [receiver.send(block()) for _ in range(2)]
    assert [(answer.status_code, answer.content) for answer in answers] == [(204, b"")] * 2
    assert (receiver.report().applied, receiver.report().duplicated) == (1, 1)


def test_share_of_failures_is_that_of_the_seed() -> None:
    def statuses() -> list[int]:
        with listening(Misbehaviour(fail_rate=0.5), seed=3) as receiver:
            return [receiver.send(Sent.of("m_1", "block", n)).status_code for n in range(1, 21)]

    first = statuses()
    assert first == statuses()
    assert set(first) == {200, 500}


def test_sender_that_hangs_up_was_not_acknowledged() -> None:
    with listening(Misbehaviour(latency_ms=500)) as receiver:
        with socket.create_connection(receiver.server.address) as sender:
            sender.sendall(on_the_wire())
            eventually(lambda: receiver.heard)
            assert receiver.report().acknowledged == 1
        eventually(lambda: receiver.unanswered)
    report = receiver.report()
    assert (report.unanswered, report.acknowledged, report.owed) == (1, 0, 1)


def test_stopped_listener_waits_for_nobody() -> None:
    with listening(Misbehaviour(latency_ms=120_000)) as receiver:
        address = receiver.server.address
        with socket.create_connection(address), socket.create_connection(address) as sender:
            sender.sendall(on_the_wire())
            eventually(lambda: receiver.heard)
            receiver.server.stop()
            assert sender.recv(12) == b"HTTP/1.1 200"


def test_failing_receiver_gets_everything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, secret_text())
    asked = Misbehaviour(fail_rate=0.3, cut=Cut(share=0.3))
    with listening(asked, seed=5) as receiver, Decisions(world.dsn) as decisions:
        world.add_endpoint(receiver.url, schedule_seconds=[0] * 30)
        for _ in range(5):
            decisions.write("m_1", "m_2", "m_3")
        world.drain()
    report = receiver.report()
    assert (report.acknowledged, report.applied, report.subjects) == (15, 15, 3)
    assert report.failed_on_purpose > 0
    assert report.cut_on_purpose == report.duplicated > 0
    assert (report.lost, report.out_of_order, report.owed, report.degraded) == (0, 0, 0, False)


def test_command_prints_a_line_each_and_a_report_on_a_signal(tmp_path: Path) -> None:
    expect = tmp_path / "keys.jsonl"
    expect.write_text("".join(f'{{"key":"{key_of("m_1", n)}"}}\n' for n in (1, 2)))
    with running("--expect", str(expect), "--drop-after-apply", "1") as (process, ready):
        assert ready["command"] == (
            f"holdfast endpoint add listen --url {ready['url']} --allow-cidr 127.0.0.1/32"
            " --secret-ref env:TEST_SECRET"
        )
        with pytest.raises(httpx.RemoteProtocolError):
            httpx.post(ready["url"], content=block().content, headers=block().headers)
        httpx.post(ready["url"], content=block().content, headers=block().headers)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    arrivals = [json.loads(line) for line in text.splitlines()]
    report = arrivals.pop()
    assert [(each["outcome"], each["status"]) for each in arrivals] == [
        ("applied", None),
        ("duplicate", 200),
    ]
    assert (report["event"], report["attempted"], report["acknowledged"]) == ("report", 2, 1)
    assert (report["duplicated"], report["lost"]) == (1, 1)
    assert report["lost_shown"] == [key_of("m_1", 2)]
    assert process.returncode == ExitCode.DEGRADED


def test_command_ends_after_the_requested_acknowledgements() -> None:
    with running("--until", "2") as (process, ready):
        with httpx.Client() as client:
            for sent in (block(), block(), Sent.of("m_1", "release", 2)):
                client.post(ready["url"], content=sent.content, headers=sent.headers)
        text, _ = process.communicate(timeout=60)
    assert json.loads(text.splitlines()[-1])["acknowledged"] == 2
    assert process.returncode == ExitCode.OK


def test_command_ends_after_its_time_with_a_report_of_nothing() -> None:
    done = invoke(*REFERENCE, "--port", "0", "--for", "1ms", "--fail-rate", "0.5", "--seed", "9")
    assert done.exit_code == ExitCode.OK
    assert re.match(r"listening on http://127\.0\.0\.1:\d+/webhooks; Ctrl-C", done.stdout)
    assert "--seed 9" in done.stdout
    assert "0  attempted" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no signing secret"),
        ((*REFERENCE, "--status", "99"), "--status must be"),
        ((*REFERENCE, "--drop-after-apply", "x"), "--drop-after-apply must be"),
        ((*REFERENCE, "--retry-after", "3"), "--status or --fail-rate"),
        ((*REFERENCE, "--for", "soon"), "--for"),
        ((*REFERENCE, "--path", "x"), "--path"),
        ((*REFERENCE, "--expect", "/missing"), "cannot be read"),
        ((*REFERENCE, "--expect", "/dev/null"), "holds no key"),
    ],
)
def test_senseless_options_are_reported_before_the_start(
    arguments: tuple[str, ...], says: str
) -> None:
    error = invoke(*arguments).exception
    assert isinstance(error, CommandError)
    assert says in str(error)
    assert error.exit_code == ExitCode.USAGE


def test_busy_port_is_one_clear_line() -> None:
    with Server("127.0.0.1", 0, "/webhooks") as server:
        error = invoke(*REFERENCE, "--port", str(server.address[1])).exception
    assert isinstance(error, CommandError)
    assert "already in use" in str(error)
