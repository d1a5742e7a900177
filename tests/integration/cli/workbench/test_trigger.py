"""`holdfast trigger`: one real delivery, sent once, and what the dispatcher would make of it."""

import json
from collections.abc import Iterator

import psycopg
import pytest
from click.testing import Result
from typer.testing import CliRunner

from holdfast.dispatcher.cli.main import application
from holdfast.dispatcher.workbench.listen.misbehaviour import Cut, Misbehaviour
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.dispatch import webhooks
from tests.support.dispatch.dispatching import add_endpoint
from tests.support.dispatch.listening import Listening, listening
from tests.support.dispatch.sender import secret_text
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.servers.certificates import Authority

BLOCK = "payout_hold.block"
ENVIRONMENT = {"TEST_SECRET": secret_text(), "HOLDFAST_SECRET_TEST": secret_text()}


@pytest.fixture
def receiver() -> Iterator[Listening]:
    with listening() as receiver:
        yield receiver


def trigger(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(
        application([]), ["trigger", *arguments], env=ENVIRONMENT | environment
    )


def to(url: str, *arguments: str) -> Result:
    return trigger(BLOCK, "--url", url, "--secret-ref", "env:TEST_SECRET", *arguments)


def refusal(result: Result) -> str:
    assert isinstance(result.exception, CommandError)
    assert result.exception.exit_code == ExitCode.USAGE
    return str(result.exception)


def test_delivery_is_applied_and_a_second_one_is_its_duplicate(receiver: Listening) -> None:
    shown = [json.loads(to(receiver.url, "--json").stdout) for _ in range(2)]
    assert [each["receipt_outcome"] for each in shown] == ["applied", "duplicate"]
    first = shown[0]
    assert (first["outcome"], first["status"], first["receipt"]) == ("delivered", 200, "genuine")
    assert first["key"] == receiver.heard[0].key
    assert ["webhook-signature", "***"] in first["request"]["headers"]
    assert receiver.heard[0].data["merchant_id"] == "m_test"


def test_people_see_request_answer_outcome_and_receipt(receiver: Listening) -> None:
    result = to(receiver.url, "--subject", "m_9", "--sequence", "4", "-D", "exposure_minor=7")
    assert result.exit_code == ExitCode.OK
    assert result.stdout.startswith(f"POST {receiver.url}\n")
    assert "webhook-signature: ***" in result.stdout
    assert '"exposure_minor":7' in result.stdout
    assert "answered 200 after " in result.stdout
    assert "outcome delivered: the lane advances" in result.stdout
    assert "receipt genuine, and says applied" in result.stdout
    assert (receiver.heard[0].subject, receiver.heard[0].sequence) == ("m_9", 4)


def test_other_data_under_the_same_key_is_rejected_as_a_conflict(receiver: Listening) -> None:
    to(receiver.url)
    result = to(receiver.url, "-D", "revision=2")
    assert result.exit_code == ExitCode.FAILED
    assert "outcome rejected: a dead letter at once" in result.stdout
    assert '"outcome":"conflict"' in result.stdout


def test_certificate_that_nobody_vouches_for_is_sent_nothing_by_any_engine() -> None:
    with webhooks.listening(Authority().server()) as receiver:
        for engine in ("httpx", "asyncio", "auto"):
            found = json.loads(to(receiver.url, "--json", "--engine", engine).stdout)
            assert "CERTIFICATE_VERIFY_FAILED" in found["error"]
    assert receiver.seen == []


def test_connection_that_is_cut_is_an_unknown_outcome() -> None:
    with listening(Misbehaviour(cut=Cut(count=1))) as receiver:
        result = to(receiver.url)
    assert result.exit_code == ExitCode.FAILED
    assert "outcome unknown: the receiver may have acted" in result.stdout
    assert receiver.report().applied == 1


def test_receiver_that_asks_for_time_is_heard() -> None:
    with listening(Misbehaviour(status=503, retry_after_seconds=9)) as receiver:
        shown = json.loads(to(receiver.url, "--json").stdout)
    assert (shown["outcome"], shown["retry_after_seconds"]) == ("throttled", 9)


def test_forged_receipt_needs_a_person() -> None:
    forged = json.dumps({"key": "x", "outcome": "applied", "applied_at": "x", "receipt": "v1,x"})
    with webhooks.listening() as receiver:
        receiver.script = lambda _seen: answer(200, forged.encode())
        result = to(receiver.url)
    assert result.exit_code == ExitCode.DEGRADED
    assert "receipt not genuine" in result.stdout


def test_answer_does_not_steer_the_terminal() -> None:
    with webhooks.listening() as receiver:
        receiver.script = lambda _seen: answer(500, b"\x1b[2J\xe2\x80\xaehello")
        result = to(receiver.url)
    assert "hello" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout


@pytest.mark.parametrize(
    "url", ["https://example.com/webhooks", "http://10.0.0.1/", "https://localhost.example/"]
)
def test_another_machine_needs_a_yes(url: str) -> None:
    assert "add --yes" in refusal(to(url))


def test_yes_does_not_open_what_the_address_guard_closes() -> None:
    result = to("https://10.0.0.1/", "--yes")
    assert result.exit_code == ExitCode.FAILED
    assert "outcome refused: " in result.stdout


def test_endpoint_is_sent_to_with_its_own_settings(
    db: psycopg.Connection, dsn: str, receiver: Listening
) -> None:
    add_endpoint(db, receiver.url, envelope="cloudevents", state="paused")
    result = trigger("note.added", "--endpoint", "payouts", "--dsn", dsn)
    assert result.exit_code == ExitCode.OK, result.stdout
    assert "(endpoint is paused)" in result.stdout
    assert "ce-type: note.added" in result.stdout
    assert receiver.heard[0].type == "note.added"
    assert db.execute("SELECT count(*) FROM holdfast.attempt").fetchone() == (0,)


def test_endpoint_whose_secret_is_elsewhere_is_named(db: psycopg.Connection, dsn: str) -> None:
    add_endpoint(db, "http://127.0.0.1:1/")
    error = trigger(BLOCK, "--endpoint", "payouts", "--dsn", dsn, HOLDFAST_SECRET_TEST="").exception
    assert isinstance(error, CommandError)
    assert "where the dispatcher runs" in str(error)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((BLOCK,), "either --url or --endpoint"),
        ((BLOCK, "--url", "http://127.0.0.1/", "--endpoint", "x"), "either --url or --endpoint"),
        ((BLOCK, "--url", "http://127.0.0.1/"), "no signing secret"),
        ((BLOCK, "--url", "ftp://127.0.0.1/", "--secret-ref", "env:TEST_SECRET"), "--url: its URL"),
        (("a b", "--url", "http://127.0.0.1/", "--secret-ref", "env:TEST_SECRET"), "is not a type"),
        ((BLOCK, "--url", "http://127.0.0.1/", "--at", "noon"), "--at 'noon'"),
    ],
)
def test_invalid_arguments_are_named(arguments: tuple[str, ...], says: str) -> None:
    assert says in refusal(trigger(*arguments))


def test_receiver_that_is_not_there_is_a_failed_attempt(free: WebhookReceiver) -> None:
    result = to(free.url)
    assert result.exit_code == ExitCode.FAILED
    assert "outcome failed: " in result.stdout


@pytest.fixture
def free() -> WebhookReceiver:
    """A receiver that was here and is gone: its port is free."""
    with webhooks.listening() as receiver:
        return receiver
