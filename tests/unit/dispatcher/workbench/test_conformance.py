"""The pure half of the conformance kit: its table, its sample, its judgement, its arguments."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.deploy.payouts.order import HoldOrder
from holdfast.dispatcher.workbench.conform import judge, rules
from holdfast.dispatcher.workbench.conform.aim import Aim
from holdfast.dispatcher.workbench.conform.bad_input import BAD_INPUT, BadInput
from holdfast.dispatcher.workbench.conform.plan import NoSuchRule, plan_of, probe_of
from holdfast.dispatcher.workbench.conform.probe import ProbeFailed, count_of
from holdfast.dispatcher.workbench.conform.reply import Reply
from holdfast.dispatcher.workbench.conform.rules import Grade, Severity
from holdfast.dispatcher.workbench.conform.run import RULES
from holdfast.dispatcher.workbench.conform.sample import Sample
from holdfast.receiver import Refused, Secret, VerificationError, verify
from holdfast.sink.contract.wire import KEY_WINDOW
from tests.support.dispatch.sender import secret_text
from tests.support.documents.pages import ROOT

SECRET = Secret.parse(secret_text())
URL = "http://127.0.0.1:8099/webhooks"
PAGE = ROOT / "docs" / "reference" / "conformance-rules.md"
MUST = rules.DUPLICATE_ONCE
SHOULD = rules.SIZE_LARGE


def aim() -> Aim:
    return Aim(Sample(7).delivery("unit"), SECRET, int(time.time()))


def reply(status: int | None, outcome: str | None = None, **headers: str) -> Reply:
    body = b"" if outcome is None else b'{"outcome":"%s"}' % outcome.encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(0.0, status, named, body, None if status else "no answer")


def test_page_names_every_rule_with_its_severity() -> None:
    listed = re.findall(r"^\| `([a-z0-9.-]+)` \| (must|should) \|", PAGE.read_text(), re.MULTILINE)
    assert listed == [(rule.id, rule.severity.value) for rule in RULES]
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_each_rule_has_a_source_and_a_fix() -> None:
    assert all(rule.source.startswith("PROTOCOL.md section") for rule in RULES)
    assert all(rule.fix.endswith((".", "ways")) for rule in RULES)


@pytest.mark.parametrize("case", BAD_INPUT, ids=lambda case: case.rule.id)
def test_reference_verifier_refuses_bad_input_with_the_documented_status(case: BadInput) -> None:
    made = case.make(aim())
    with pytest.raises((VerificationError, Refused)) as caught:
        HoldOrder.of(verify(made.headers, made.body, [SECRET]).body)
    error = caught.value
    status = error.problem.status if isinstance(error, Refused) else error.status
    assert status == case.status


def test_good_delivery_is_one() -> None:
    made = aim().good
    assert verify(made.headers, made.body, [SECRET]).key == aim().delivery.key


def test_same_seed_makes_the_same_bytes_and_another_seed_other_keys() -> None:
    first, again = Sample(1).delivery("a", sequence=3), Sample(1).delivery("a", sequence=3)
    assert first == again
    others = [Sample(2).delivery("a", sequence=3), Sample(1).delivery("b", sequence=3)]
    assert first.key not in {other.key for other in others}
    revised = Sample(1).delivery("a", sequence=3, revised=True)
    assert (revised.key, revised.body == first.body) == (first.key, False)


@pytest.mark.parametrize(
    ("status", "must", "should"),
    [
        (400, "pass", "pass"),
        (401, "pass", "pass"),
        (403, "pass", "pass"),
        (200, "fail", "warn"),
        (202, "fail", "warn"),
        (302, "fail", "fail"),
        (408, "fail", "fail"),
        (409, "fail", "fail"),
        (410, "fail", "fail"),
        (429, "fail", "fail"),
        (500, "fail", "fail"),
        (503, "fail", "fail"),
        (None, "fail", "fail"),
    ],
)
def test_bad_request_is_graded_by_its_outcome(status: int | None, must: str, should: str) -> None:
    assert judge.refused(MUST, reply(status), 400).grade == must
    assert judge.refused(SHOULD, reply(status), 400).grade == should


@pytest.mark.parametrize(
    ("answer", "applied", "grade"),
    [
        (reply(200, "duplicate"), None, "pass"),
        (reply(200, "duplicate"), 1, "pass"),
        (reply(200, "duplicate"), 2, "fail"),
        (reply(200, "duplicate"), 0, "fail"),
        (reply(200, idempotency_replayed="true"), None, "pass"),
        (reply(200), None, "warn"),
        (reply(204), 1, "pass"),
        (reply(200), 2, "fail"),
        (reply(200, "applied"), None, "fail"),
        (reply(200, "stale"), None, "fail"),
        (reply(409, "in_progress"), None, "fail"),
        (reply(422, "conflict"), None, "fail"),
        (reply(500), 1, "fail"),
        (reply(None), None, "fail"),
    ],
)
def test_repeat_is_judged_by_outcome_count(answer: Reply, applied: int | None, grade: str) -> None:
    assert judge.once(MUST, answer, applied).grade == grade


@pytest.mark.parametrize(
    ("answers", "last", "applied", "once", "manner"),
    [
        (["applied", "duplicate", "duplicate"], "duplicate", None, "pass", "pass"),
        (["applied", "applied", "duplicate"], "duplicate", None, "fail", "pass"),
        (["applied", "duplicate"], "duplicate", 2, "fail", "pass"),
        (["duplicate", "duplicate"], "duplicate", None, "fail", "pass"),
        (["in_progress", "in_progress"], "applied", None, "pass", "pass"),
        (["applied", None], "applied", None, "fail", "warn"),
    ],
)
def test_concurrent_duplicates_are_counted(
    answers: list[str | None], last: str, applied: int | None, once: str, manner: str
) -> None:
    replies = [reply({"in_progress": 409, None: 500}.get(each, 200), each) for each in answers]
    graded = judge.concurrent(replies, reply(200, last), applied)
    assert [verdict.grade for verdict in graded] == [once, manner]


@pytest.mark.parametrize(
    ("declared", "grade"),
    [
        (None, "pass"),
        ("forever", "pass"),
        ("3888000", "pass"),
        ("1728000", "warn"),
        ("300", "fail"),
        ("0", "fail"),
        ("45 days", "warn"),
        ("03888000", "warn"),
        ("٣", "warn"),
    ],
)
def test_key_window_has_to_outlive_retries(declared: str | None, grade: str) -> None:
    assert judge.window(declared).grade == grade


@pytest.mark.parametrize(
    ("status", "grade"), [(422, "pass"), (200, "fail"), (409, "fail"), (400, "warn"), (500, "fail")]
)
def test_other_body_of_a_known_key_has_to_reach_a_person(status: int, grade: str) -> None:
    assert judge.conflict(rules.CONFLICT_REFUSED, reply(status)).grade == grade


def test_stranger_in_an_answer_is_no_outcome() -> None:
    assert reply(200, "done").outcome is None
    assert Reply(0.0, 200, body=b"[1]").outcome is None
    assert Reply(0.0, 200, body=b"\xff").content == {}


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"applied":"1"}', b"-1", b"true", b"1.5", b"\xff"]
)
def test_probe_without_a_count_is_no_count(answer: bytes) -> None:
    with pytest.raises(ProbeFailed, match="expected"):
        count_of(answer)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"url": "ftp://127.0.0.1/"}, "not http"),
        ({"url": "http://user@127.0.0.1/"}, "a user"),
        ({"inquiry": "http://127.0.0.1/keys"}, "{key}"),
        ({"type_": "refund.granted"}, "go together"),
        ({"type_": "a b", "data": b'{"a":"{subject}"}'}, "--type"),
        ({"type_": "a", "data": b"[]"}, "JSON object"),
        ({"type_": "a", "data": b"{"}, "not JSON"),
        ({"type_": "a", "data": b'{"a":1}'}, "{subject}"),
        ({"type_": "a", "data": b'{"a":"{subject}","b":1.5}'}, "no canonical form"),
        ({"ca_file": Path("/nowhere")}, "cannot be used"),
    ],
)
def test_invalid_argument_is_refused_with_a_reason(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        plan_of(**{"url": URL, "secrets": [SECRET], "seed": 1, **options})


def test_patterns_select_rules_and_unmatched_ones_are_named() -> None:
    plan = plan_of(URL, [SECRET], seed=1, only=["time.*"], skip=["time.day-*"])
    assert {rule.id.partition(".")[0] for rule in RULES if plan.wants(rule)} == {"time"}
    assert not any(plan.wants(rule) for rule in RULES if rule.id == "time.day-old")
    with pytest.raises(NoSuchRule, match="tmie"):
        plan_of(URL, [SECRET], seed=1, only=["tmie.*"])


def test_inquiry_goes_to_the_root_of_the_url_unless_it_is_named() -> None:
    assert plan_of(URL, [SECRET], seed=1).inquiry_url == "http://127.0.0.1:8099/holdfast/keys/{key}"


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("http://127.0.0.1/", None),
        ("file:///{key}", None),
        (None, "count"),
        (None, "'{key}"),
        ("http://127.0.0.1/{key}", "count {key}"),
    ],
)
def test_probe_that_cannot_ask_for_a_key_is_refused(url: str | None, command: str | None) -> None:
    with pytest.raises(ValueError, match=r"key|only one|quotation"):
        probe_of(url, command)


def test_severity_decides_what_a_violation_is() -> None:
    assert (MUST.severity, SHOULD.severity) == (Severity.MUST, Severity.SHOULD)
    assert (MUST.violated("x").grade, SHOULD.violated("x").grade) == (Grade.FAIL, Grade.WARN)


def test_grade_of_a_window_names_its_header_or_seconds() -> None:
    assert "300 s" in judge.window("300").detail
    assert KEY_WINDOW in judge.window("x").detail
