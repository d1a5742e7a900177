"""`holdfast sign`, `verify` and `trigger`: one signature, and one real delivery, by hand."""

import json
from collections.abc import Iterator
from pathlib import Path

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
from tests.support.dispatch.sender import OTHER_KEY_BYTES, body, headers, key_of, secret_text, sign
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.servers.certificates import Authority
from tests.support.world import World

NOW = 1_793_620_000
BODY = body()
KEY = key_of("m_482", 1)
SECRET = ("--secret-ref", "env:TEST_SECRET")
OTHER = ("--secret-ref", "env:OTHER_SECRET")
ENVIRONMENT = {"TEST_SECRET": secret_text(), "OTHER_SECRET": secret_text(OTHER_KEY_BYTES)}


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(application([]), arguments, env=ENVIRONMENT, input=stdin)


def verify(*arguments: str, content: bytes = BODY, **changes: str) -> Result:
    fields = headers(BODY, timestamp=NOW) | {
        name.replace("_", "-"): value for name, value in changes.items()
    }
    result = [part for name, value in fields.items() for part in ("-H", f"{name}: {value}")]
    return invoke("verify", *result, *(arguments or (*SECRET, "--at", str(NOW))), stdin=content)


def refusal(result: Result) -> str:
    assert isinstance(result.exception, CommandError)
    assert result.exception.exit_code == ExitCode.USAGE
    return str(result.exception)


def test_signed_headers_are_those_of_the_standard_for_each_secret() -> None:
    done = invoke("sign", *SECRET, *OTHER, "--timestamp", "2026-11-02T11:46:40Z", stdin=BODY)
    both = f"{sign(KEY, NOW, BODY)} {sign(KEY, NOW, BODY, OTHER_KEY_BYTES)}"
    assert done.stdout.splitlines() == [
        f"webhook-id: {KEY}",
        f"webhook-timestamp: {NOW}",
        f"webhook-signature: {both}",
    ]


def test_any_bytes_are_signed_under_an_id_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\n")
    arguments = (*SECRET, "--id", "msg_1", "--timestamp", "5", "--json", str(tmp_path / "body"))
    shown = json.loads(invoke("sign", *arguments).stdout)
    assert shown["webhook-signature"] == sign("msg_1", 5, b"\xff\n")


def test_signed_request_verifies_from_a_file_too(tmp_path: Path) -> None:
    signed = invoke("sign", *SECRET, stdin=BODY).stdout_bytes
    capture = tmp_path / "capture"
    capture.write_bytes(b"POST /webhooks HTTP/1.1\r\n" + signed + b"\r\n" + BODY)
    done = invoke("verify", *OTHER, *SECRET, "--headers", str(capture))
    assert done.exit_code == ExitCode.OK
    assert f"genuine: payout_hold.block {KEY}, sequence 1" in done.stdout
    assert "env:TEST_SECRET" in done.stdout


def test_genuine_request_is_described() -> None:
    shown = json.loads(verify(*SECRET, "--at", str(NOW + 7), "--json").stdout)
    assert (shown["genuine"], shown["key"], shown["age_seconds"]) == (True, KEY, 7)
    assert (shown["secret_ref"], shown["signed_at"]) == ("env:TEST_SECRET", "2026-11-02T11:46:40Z")


@pytest.mark.parametrize("at", [str(NOW + 300), "2026-11-02T11:50:00Z", "signed"])
def test_old_capture_is_judged_as_of_its_time(at: str) -> None:
    assert verify(*SECRET, "--at", at).exit_code == ExitCode.OK


def test_old_capture_verifies_only_with_a_wide_tolerance() -> None:
    done = verify(*SECRET, "--at", str(NOW + 301))
    assert done.exit_code == ExitCode.FAILED
    assert "not genuine: too_old (a receiver answers 401)" in done.stdout
    assert verify(*SECRET, "--at", str(NOW + 301), "--tolerance", "301").exit_code == ExitCode.OK


def test_failed_rule_shows_expected_and_actual_without_secrets() -> None:
    longer = BODY + b"\n"
    done = verify(content=longer)
    assert done.exit_code == ExitCode.FAILED
    assert "not genuine: no_match" in done.stdout
    assert f"expected  {sign(KEY, NOW, longer)}" in done.stdout
    assert f"found     {sign(KEY, NOW, BODY)}" in done.stdout
    assert "hint      the signature matches the body without its last newline" in done.stdout
    assert secret_text().removeprefix("whsec_") not in done.stdout
    shown = json.loads(verify(*OTHER, "--at", str(NOW), "--json").stdout)
    assert (shown["genuine"], shown["reason"], shown["hint"]) == (False, "no_match", None)


def test_header_of_a_stranger_does_not_steer_the_terminal() -> None:
    done = verify(webhook_id="a\x1b[2J")
    assert "not genuine: bad_id" in done.stdout
    assert "found     a\\x1b[2J" in done.stdout


def test_request_of_another_sender_is_checked_by_signature_only() -> None:
    content = b'{"event_type":"ping"}'
    changes = {
        "webhook_id": "msg_1",
        "webhook_signature": sign("msg_1", NOW, content),
        "idempotency_key": "theirs",
    }
    at = (*SECRET, "--at", str(NOW))
    assert verify(*at, "--signature-only", content=content, **changes).stdout.startswith(
        "genuine: request msg_1\n"
    )
    assert "not genuine: bad_body" in verify(*at, content=content, **changes).stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("sign",), "no signing secret"),
        (("sign", "--secret-ref", "whsec_x"), "env:VAR or file:PATH"),
        (("sign", *SECRET), "--id is required"),
        (("sign", *SECRET, "--id", "a.b"), "--id must be"),
        (("sign", *SECRET, "--id", "a", "--timestamp", "1e5"), "is not a time"),
        (
            ("sign", *SECRET, "--id", "a", "--timestamp", "0001-01-01T00:00:00Z"),
            "--timestamp is before 1970",
        ),
        (("sign", *SECRET, "/missing"), "cannot be read"),
        (("verify", *SECRET), "no headers"),
        (("verify", *SECRET, "-H", "nonsense"), "-H must be 'name: value'"),
        (("verify", *SECRET, "-H", "a: 1", "--at", "noon"), "is not a time"),
        (("verify", *SECRET, "-H", "a: 1", "--tolerance", "-1"), "--tolerance"),
        (("verify", *SECRET, "--headers", "/missing"), "cannot be read"),
    ],
)
def test_arguments_without_sense_are_named(arguments: tuple[str, ...], says: str) -> None:
    assert says in refusal(invoke(*arguments, stdin=b"not a delivery"))


BLOCK = "payout_hold.block"
TRIGGER_ENVIRONMENT = {"TEST_SECRET": secret_text(), "HOLDFAST_SECRET_TEST": secret_text()}


@pytest.fixture
def receiver() -> Iterator[Listening]:
    with listening() as receiver:
        yield receiver


def trigger(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(
        application([]), ["trigger", *arguments], env=TRIGGER_ENVIRONMENT | environment
    )


def to(url: str, *arguments: str) -> Result:
    return trigger(BLOCK, "--url", url, "--secret-ref", "env:TEST_SECRET", *arguments)


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


def test_no_engine_sends_to_an_untrusted_certificate() -> None:
    with webhooks.listening(Authority().server()) as receiver:
        for engine in ("httpx", "asyncio", "auto"):
            data = json.loads(to(receiver.url, "--json", "--engine", engine).stdout)
            assert "CERTIFICATE_VERIFY_FAILED" in data["error"]
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


def test_endpoint_is_sent_to_with_its_own_settings(world: World, receiver: Listening) -> None:
    world.add_endpoint(receiver.url, envelope="cloudevents", state="paused")
    result = trigger("note.added", "--endpoint", "payouts", "--dsn", world.dsn)
    assert result.exit_code == ExitCode.OK, result.stdout
    assert "(endpoint is paused)" in result.stdout
    assert "ce-type: note.added" in result.stdout
    assert receiver.heard[0].type == "note.added"
    assert world.db.execute("SELECT count(*) FROM holdfast.attempt").fetchone() == (0,)


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


def test_missing_receiver_is_a_failed_attempt(free: WebhookReceiver) -> None:
    result = to(free.url)
    assert result.exit_code == ExitCode.FAILED
    assert "outcome failed: " in result.stdout


@pytest.fixture
def free() -> WebhookReceiver:
    """A receiver that was here and is gone: its port is free."""
    with webhooks.listening() as receiver:
        return receiver
