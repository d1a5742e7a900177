"""What a test of an endpoint makes of what it saw."""

import pytest

from holdfast.dispatcher.outbound.endpoint_probe import (
    DONE,
    FAILED,
    Reached,
    judge,
    reason_of,
    unreached,
)
from holdfast.dispatcher.shared.outcome import NoAnswer, NotSent, Refused, Response, classify
from holdfast.sink.contract.exits import ExitCode


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
def test_a_receipt_decides_about_a_delivery_that_was_taken(
    receipt: str, word: str, code: ExitCode
) -> None:
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
