"""`holdfast sign` and `holdfast verify`: a person's way to the bottom of a signature."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from holdfast.dispatcher.cli.main import application
from holdfast.sink.contract.exits import CommandError, ExitCode
from tests.support.dispatch.sender import OTHER_KEY_BYTES, body, headers, key_of, secret_text, sign

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
    given = [part for name, value in fields.items() for part in ("-H", f"{name}: {value}")]
    return invoke("verify", *given, *(arguments or (*SECRET, "--at", str(NOW))), stdin=content)


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


def test_what_was_signed_is_genuine_also_as_a_file_of_headers_and_body(tmp_path: Path) -> None:
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


def test_old_capture_is_too_old_now_and_not_with_a_wide_tolerance() -> None:
    done = verify(*SECRET, "--at", str(NOW + 301))
    assert done.exit_code == ExitCode.FAILED
    assert "not genuine: too_old (a receiver answers 401)" in done.stdout
    assert verify(*SECRET, "--at", str(NOW + 301), "--tolerance", "301").exit_code == ExitCode.OK


def test_failed_rule_is_shown_with_what_was_expected_and_found_and_no_secret() -> None:
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


def test_request_of_another_sender_is_judged_by_its_signature_alone() -> None:
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
