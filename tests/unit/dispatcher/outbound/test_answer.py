"""What an answer means: its outcome, its receipt, the time it asks for, and its bytes as text."""

import html
import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.outbound.endpoint_probe import (
    DONE,
    FAILED,
    Reached,
    judge,
    reason_of,
    unreached,
)
from holdfast.dispatcher.outbound.receipt import other_key, proven_receipt, says_stale
from holdfast.dispatcher.outbound.retry_after import SECONDS_MAX, parse_retry_after
from holdfast.dispatcher.shared.outcome import (
    RESPONSE_BYTES_READ_MAX,
    NoAnswer,
    NotSent,
    Refused,
    Response,
    classify,
)
from holdfast.dispatcher.shared.text import (
    HIDDEN_CHARACTERS_MIN,
    hide,
    last_word,
    one_line,
    spellings,
    storable,
)
from holdfast.receiver.message.secret import Secret
from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.shell import shell_word
from holdfast.sink.contract.states import Outcome
from tests.support.dispatch.sender import KEY_BYTES, OTHER_KEY_BYTES, receipt

BY_STATUS = {
    Outcome.DELIVERED: (200, 201, 202, 204, 206, 299),
    Outcome.FAILED: (
        *(100, 101, 199, 300, 301, 302, 303, 304, 307, 308),
        *(401, 403, 407, 408, 409, 500, 501, 502, 503, 504, 507, 511, 599, 600, 999),
    ),
    Outcome.REJECTED: (
        *(400, 404, 405, 406, 411, 413, 415, 418, 421, 422, 425, 426, 428, 431, 451, 499),
    ),
    Outcome.GONE: (410,),
    Outcome.THROTTLED: (429,),
}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(status, outcome) for outcome, statuses in BY_STATUS.items() for status in statuses],
)
def test_status_line_decides(status: int, outcome: Outcome) -> None:
    assert classify(Response(status)) is outcome


def test_unavailable_is_throttling_only_when_it_says_for_how_long() -> None:
    assert classify(Response(503, ("5",))) is Outcome.THROTTLED
    assert classify(Response(500, ("5",))) is Outcome.FAILED


def test_refusal_is_of_the_entry_unless_it_says_otherwise() -> None:
    assert classify(Refused("body of 2 MB")) is Outcome.REFUSED
    assert not Refused("body of 2 MB").of_endpoint


def test_a_byte_on_the_wire_makes_a_failure_unknown() -> None:
    assert classify(NotSent("connection refused")) is Outcome.FAILED
    assert classify(NoAnswer("connection reset")) is Outcome.UNKNOWN
    assert classify(Refused("10.0.0.1 is private")) is Outcome.REFUSED


KEY = "hf_" + "0" * 32
ANSWER = {"key": KEY, "outcome": "applied", "applied_at": "2026-11-02T12:15:01Z"}
SECRETS = [Secret(OTHER_KEY_BYTES), Secret(KEY_BYTES)]


def body(**changes: Any) -> bytes:
    return json.dumps({**ANSWER, "receipt": receipt(ANSWER), "more": "ignored", **changes}).encode()


def genuine(**changes: str) -> bytes:
    """An answer with these members, and a receipt that the secret made over them."""
    answer = {**ANSWER, **changes}
    return json.dumps({**answer, "receipt": receipt(answer)}).encode()


def test_genuine_receipt_of_either_secret_is_kept() -> None:
    kept = proven_receipt(body(), KEY, SECRETS)
    assert kept is not None
    assert json.loads(kept) == {**ANSWER, "receipt": receipt(ANSWER)}


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"ok",
        b"[1]",
        b'"x"',
        b"{}",
        b"\xff",
        b"[" * 16_000,
        body(key="hf_" + "1" * 32),
        body(outcome="duplicate"),
        body(outcome="invented"),
        body(applied_at="2026-11-02T12:15:02Z"),
        body(applied_at=None),
        body(applied_at="\ud800"),
        body(receipt=None),
        body(receipt="v1,"),
        body(receipt="é"),
        body(receipt=receipt(ANSWER, bytes(32))),
        b'"receipt"',
        b'["receipt"]',
        b'{"receipt": "v1,"}',
        b'{"receipt":' + b"[" * 16_000,
        genuine(applied_at="2" * 129),
        genuine(applied_at="\u0662"),
    ],
)
def test_anything_else_is_no_receipt(answer: bytes) -> None:
    assert proven_receipt(answer, KEY, SECRETS) is None


def test_receipt_of_the_longest_fields_is_kept() -> None:
    assert proven_receipt(genuine(applied_at="2" * 128), KEY, SECRETS) is not None


@pytest.mark.parametrize(("outcome", "stale"), [("stale", True), ("applied", False)])
def test_genuine_receipt_says_whether_it_is_stale(outcome: str, stale: bool) -> None:
    assert says_stale(proven_receipt(genuine(outcome=outcome), KEY, SECRETS)) is stale
    assert not says_stale(None)


def test_receipt_for_another_key_proves_nothing_here() -> None:
    assert proven_receipt(body(), "hf_" + "1" * 32, SECRETS) is None


KEYS = st.binary(min_size=16, max_size=16).map(lambda digest: f"hf_{digest.hex()}")
BLANKS = st.sampled_from(["", " ", "\n\t"])
VALUES = st.none() | st.text() | st.integers() | st.lists(st.text())
MEMBERS = st.dictionaries(
    st.text().filter(lambda name: name not in ("key", "receipt", "pad")), VALUES, max_size=3
)
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"]


@given(KEYS, KEYS, MEMBERS, BLANKS, st.booleans(), st.booleans(), st.sampled_from(ENCODINGS))
def test_answer_names_another_key_however_it_is_written(
    ours: str,
    named: str,
    more: dict[str, Any],
    blank: str,
    capitals: bool,
    nested: bool,
    encoding: str,
) -> None:
    texts = {"key": f"{blank}{named.upper() if capitals else named}{blank}"}
    answer = {**more, "receipt": texts} if nested else {**more, **texts}
    body = json.dumps(answer).encode(encoding)
    assert other_key(body, ours) == (None if named == ours else named)
    assert other_key(body, named) is None


@given(
    KEYS, KEYS, MEMBERS, st.integers(0, 200), st.booleans(), st.sampled_from(["utf-8", "utf-16"])
)
def test_truncated_answer_is_ours_only_if_it_names_our_key(
    ours: str, named: str, more: dict[str, Any], pad: int, both: bool, encoding: str
) -> None:
    texts = [{"key": named}, *([{"key": ours}] if both else [])]
    full = json.dumps({**more, "receipt": texts, "pad": "x" * (RESPONSE_BYTES_READ_MAX + pad)})
    body = full.encode(encoding)[:RESPONSE_BYTES_READ_MAX]
    assert other_key(body, ours) == (None if both or named == ours else named)


@given(KEYS, KEYS, MEMBERS, st.integers(0), st.sampled_from([b"\xff", b"\x80", b"\xc3("]))
def test_answer_that_is_damaged_names_another_key(
    ours: str, named: str, more: dict[str, Any], at: int, damage: bytes
) -> None:
    members = json.dumps(more).encode()
    at %= len(members) + 1
    body = b'{"more": %s%s%s, "key": "%s"}' % (members[:at], damage, members[at:], named.encode())
    assert other_key(body, ours) == (None if named == ours else named)


@given(KEYS, KEYS)
def test_key_is_found_in_escapes_and_in_capitals(ours: str, named: str) -> None:
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in named)
    capitals = b'{"more": \xff, "key": "%s"}' % named.upper().encode()
    for answer in (f'{{"key": "{escaped}"}}'.encode(), capitals):
        assert other_key(answer, ours) == (None if named == ours else named)


@given(KEYS)
def test_key_of_the_receivers_own_form_names_none(ours: str) -> None:
    for own in ("order-1", f"{ours}0", f"x{ours}", "hf_"):
        assert other_key(json.dumps({"key": own, "earlier": "hf_"}).encode(), ours) is None
    assert other_key(b'["hf_",' + b"[" * 16_000, ours) is None


@given(KEYS, KEYS, st.sampled_from(["list", "nested", "deep"]))
def test_answer_with_keys_elsewhere_names_none(ours: str, named: str, where: str) -> None:
    texts = {"key": named}
    bodies = {"list": [texts], "nested": {"earlier": texts}, "deep": {"receipt": {"before": texts}}}
    assert other_key(json.dumps(bodies[where]).encode(), ours) is None


@given(KEYS, st.binary())
def test_no_answer_breaks_the_search_for_a_key(ours: str, body: bytes) -> None:
    assert other_key(body, ours) is None
    assert other_key(b'{"key": "' + body, ours) is None


NOW = datetime(2026, 11, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        (" 120 ", 120),
        ("9999999", 9_999_999),
        ("99999999", 99_999_999),
        ("99999999999999999999", SECONDS_MAX),
        ("1" * 10_000, SECONDS_MAX),
        ("Mon Nov  2 12:02:00 2026", 120),
        ("Tue Nov 10 12:00:00 2026", 691_200),
        ("Mon, 02 Nov 2026 12:02:00 GMT", 120),
        ("Monday, 02-Nov-26 12:02:00 GMT", 120),
        ("Mon, 02 Nov 2026 11:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 251_608_679_999),
    ],
)
def test_seconds_and_dates_are_understood(value: str, seconds: float) -> None:
    assert parse_retry_after((value,), NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value",
    [
        *("", " ", "-5", "+5", "1_000", "1e9", "inf", "nan", "0x10", "1.5", "120, 240"),
        *("١٢٠", "soon", "٣"),
        "Wed, 31 Feb 2026 12:00:00 GMT",
        "Mon Nov 02 12:02:00 2026",
        "Mon Feb 31 12:02:00 2026",
        "Mon Nov  2 12:02:00 2026 EST",
        "Mon, 02 Nov 2026 12:02:00 -0000",
        "Mon, 02 Nov 2026 12:02:00",
        "Mon, 02 Nov 99999 12:02:00 GMT",
        "Mon, 01 Jan 99999999999 00:00 +0000",  # beyond an integer of C
        "Mon, 1 Jan 2020 0:99999999999:0 GMT",
        "Mon, 02 Nov 2026 25:02:00 GMT",
    ],
)
def test_anything_else_is_ignored(value: str) -> None:
    assert parse_retry_after((value,), NOW) is None


def test_none_or_two_fields_say_nothing() -> None:
    assert parse_retry_after((), NOW) is None
    assert parse_retry_after(("5", "6"), NOW) is None


@pytest.mark.parametrize(
    ("status", "reason", "word", "code"),
    [
        (400, "unknown_type", "verified", ExitCode.OK),
        (422, "bad_data", "verified", ExitCode.OK),
        (401, "no_match", "secret_differs", ExitCode.FAILED),
        (401, "too_old", "clocks_differ", ExitCode.FAILED),
        (400, "bad_header", "altered", ExitCode.FAILED),
        (401, "unknown_type", "verified", ExitCode.OK),
        (403, None, "not_let_in", ExitCode.FAILED),
        (407, None, "not_let_in", ExitCode.FAILED),
        (405, "method_not_allowed", "wrong_path", ExitCode.FAILED),
        (404, None, "wrong_path", ExitCode.FAILED),
        (400, None, "refused", ExitCode.DEGRADED),
        (400, "of_its_own", "refused", ExitCode.DEGRADED),
        (410, None, "gone", ExitCode.FAILED),
        (429, None, "throttled", ExitCode.DEGRADED),
        (302, None, "redirected", ExitCode.FAILED),
        (500, None, "failing", ExitCode.FAILED),
        (409, None, "failing", ExitCode.FAILED),
    ],
)
def test_each_answer_has_a_verdict(
    status: int, reason: str | None, word: str, code: ExitCode
) -> None:
    verdict = judge(classify(Response(status)), status, reason, "none")
    assert (verdict.word, verdict.exit_code) == (word, code)
    assert bool(verdict.advice) is (word != "verified")


@pytest.mark.parametrize(
    ("answer", "word"),
    [(NoAnswer("x"), "no_answer"), (NotSent("x"), "not_sent"), (Refused("x"), "address_refused")],
)
def test_no_answer_has_a_verdict(answer: NoAnswer | NotSent | Refused, word: str) -> None:
    verdict = judge(classify(answer), None, None, "none")
    assert (verdict.word, verdict.exit_code) == (word, ExitCode.FAILED)


@pytest.mark.parametrize(
    ("receipt", "word", "code"),
    [
        ("genuine", "taken", ExitCode.OK),
        ("none", "taken", ExitCode.OK),
        ("not genuine", "receipt_forged", ExitCode.DEGRADED),
    ],
)
def test_receipt_decides_about_a_taken_delivery(receipt: str, word: str, code: ExitCode) -> None:
    verdict = judge(classify(Response(200)), 200, None, receipt)
    assert (verdict.word, verdict.exit_code) == (word, code)


def test_the_step_that_failed_decides() -> None:
    done = Reached("dns", DONE, "x")
    assert unreached([done]) is None
    words = []
    for name in ("dns", "address", "connect", "tls"):
        verdict = unreached([done, Reached(name, FAILED, "x")])
        assert verdict is not None
        assert verdict.exit_code is ExitCode.FAILED
        words.append(verdict.word)
    assert words == ["name_unknown", "address_refused", "no_connection", "tls_failed"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"reason": "bad_data"}', "bad_data"),
        ('{"reason": "\\u001b[2J"}', None),
        ('{"reason": 3}', None),
        ("[]", None),
        ("[" * 100_000, None),
        (None, None),
    ],
)
def test_a_reason_is_a_printable_text_of_a_problem(body: str | None, reason: str | None) -> None:
    assert reason_of(body) == reason


@given(st.binary(max_size=6000))
def test_any_body_becomes_bounded_text_that_postgres_takes(raw: bytes) -> None:
    text = storable(raw)
    assert (text is None) == (raw == b"")
    if text is not None:
        assert len(text.encode()) <= 4096
        assert "\x00" not in text
        assert "\x1b" not in text


def test_bodies_are_cut_between_characters() -> None:
    assert storable("é".encode() * 3000) == "é" * 2048


def test_secrets_and_signatures_are_masked() -> None:
    echoed = b'{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","sig":"v1,g0hM9SsE+OTPJTGt/tm="}'
    assert storable(echoed) == '{"secret":"***","sig":"***"}'
    assert storable(b"Authorization: Bearer abcdefghijk.123") == "Authorization: Bearer ***"


VISIBLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)
TEXT_VALUES = st.text(VISIBLE, min_size=HIDDEN_CHARACTERS_MIN, max_size=40).filter(
    lambda value: "*" not in value
)


@given(
    st.lists(TEXT_VALUES, min_size=1, max_size=4),
    st.text(),
    st.sampled_from(["", "Bearer ", "basic ", "whsec_"]),
    st.sampled_from([str, json.dumps, html.escape, lambda value: quote(value, safe="")]),
)
def test_no_value_that_a_receiver_repeats_is_left(
    values: list[str], between: str, before: str, written: Callable[[str], str]
) -> None:
    hidden = spellings(f"{before}{value}" for value in values)
    output = between.replace("*", "").join(written(value) for value in values)
    text = hide(output, hidden)
    assert not any(each in text for each in hidden)
    stored = storable(output.encode(errors="replace"), hidden=hidden)
    assert not any(each in (stored or "") for each in hidden)


@given(TEXT_VALUES, st.integers(HIDDEN_CHARACTERS_MIN))
def test_value_that_is_cut_off_is_not_left(value: str, length: int) -> None:
    cut = value[: HIDDEN_CHARACTERS_MIN + length % len(value)]
    assert hide(f"= {cut}", spellings([value])) == "= ***"


def test_short_values_and_other_words_are_left() -> None:
    assert spellings(["short", "Bearer short"]) == spellings(["Bearer short"])
    assert hide("a short answer", spellings(["short"])) == "a short answer"
    assert storable(b"an answer", hidden=spellings(["another"])) == "an answer"


@pytest.mark.parametrize("written", ["a/b+c=d", r"a\/b+c=d", "a%2Fb%2Bc%3Dd"])
def test_token_is_hidden_in_every_spelling(written: str) -> None:
    assert hide(f"no: {written}.", spellings(["Bearer a/b+c=d"])) == "no: ***."


def test_errors_are_one_bounded_line() -> None:
    assert one_line("a\n  b\x1b[31m") == "a b�[31m"
    assert len(one_line("x" * 5000)) == 300
    assert one_line("lone \ud800").encode()


def test_any_name_reaches_a_command_exactly_through_the_shell() -> None:
    names = [
        *("m_1", "", "m  two", " m ", "it's $(x)", "`x` !x \\\\ \\n *", '"', "é\u20ac\U0001f600"),
        *(
            "m\ttab",
            "a\nb\n",
            "\x1b[2J'\\\\!",
            "nbsp\xa0end",
            "\u202e\x9fab",
            "x" * 700,
            "whsec_abcdefgh",
        ),
        *("-x", "--help", "-\t"),
    ]
    words = [shell_word(name) for name in names]
    assert all(word.isprintable() for word in words)
    script = f"printf '%s\\0' {' '.join(words)}"
    done = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == names


def test_last_argument_of_a_command_is_no_option() -> None:
    assert (last_word("m_1"), last_word("-x"), last_word("-\t")) == ("m_1", "-- -x", "-- $'-\\x09'")
