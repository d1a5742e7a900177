"""`holdfast receipts`: what was sent against what the payouts service really applied."""

import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.receipts import key_inquiry
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.payouts import (
    DELIVERED,
    SUBJECTS,
    UNANSWERED,
    Sides,
    copies,
    deliver_all,
    empty_database,
    key_text,
    payouts,
)
from tests.support.dispatch.sender import OTHER_KEY_BYTES, secret_text
from tests.support.servers.databases import copy_of

ALL = ("receipts", "--endpoint", "payouts")
NOTHING = {
    *("missing_there", "other_body", "other_outcome", "other_time", "stale_there", "overtaken"),
    *("no_receipt", "only_there", "pruned_here"),
}
"""Findings that the untouched databases do not give."""


@pytest.fixture(scope="module")
def delivered(server_dsn: str, template_database: str) -> Iterator[tuple[str, str]]:
    """Both databases after the deliveries; nobody is connected to them."""
    with (
        pytest.MonkeyPatch.context() as environment,
        copy_of(server_dsn, template_database) as dsn,
        empty_database(server_dsn) as receiver_dsn,
    ):
        environment.setenv(SECRET, secret_text())
        deliver_all(dsn, receiver_dsn)
        yield dsn, receiver_dsn


@pytest.fixture
def sides(server_dsn: str, delivered: tuple[str, str]) -> Iterator[Sides]:
    with copies(server_dsn, *delivered) as sides:
        yield sides


def compared(sides: Sides, *options: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    """What `--receiver` finds, the DSN given by the name of a variable."""
    return holdfast(
        *(*ALL, "--receiver", "env:THEIRS", "--json", *options),
        dsn=sides.dsn,
        environment={"THEIRS": sides.receiver_dsn},
        code=code,
    ).json


def the_one(answer: dict[str, Any], finding: str) -> dict[str, Any]:
    [row] = [row for row in answer["differences"] if row["finding"] == finding]
    assert answer["findings"][finding] == 1
    assert answer["meaning"][finding]
    one: dict[str, Any] = row
    return one


@pytest.mark.rest
def test_delivered_agrees_and_lost_answer_is_undelivered_here(sides: Sides) -> None:
    subjects = sides.db.execute("SELECT id, name FROM holdfast.subject ORDER BY id").fetchall()
    assert subjects == list(enumerate(SUBJECTS, 1)), "tests below name subjects by their number"
    comparison = compared(sides)
    assert (comparison["delivered"], comparison["undelivered"]) == (len(DELIVERED), 1)
    assert comparison["receipts"] == {"applied": 3, "duplicate": 0, "stale": 0, "none": 0}
    assert comparison["findings"]["agreed"] == len(DELIVERED)
    assert not any(comparison["findings"][each] for each in NOTHING)
    lost = the_one(comparison, "undelivered_here")
    assert (lost["key"], lost["subject"], lost["sequence"]) == (key_text("m_4"), UNANSWERED, 1)
    assert lost["here"]["last_outcome"] == "unknown"
    assert lost["there"]["outcome"] == "applied"
    assert lost["here"]["body_sha256"] == lost["there"]["body_sha256"]


@pytest.mark.rest
def test_each_difference_is_found_and_named(sides: Sides) -> None:
    sides.at_receiver("DELETE FROM payouts.inbox WHERE key = %s", "m_1")
    comparison = compared(sides, code=ExitCode.DEGRADED)
    lost = the_one(comparison, "missing_there")
    assert (lost["key"], lost["subject"], lost["there"]) == (key_text("m_1"), "m_1", None)
    assert lost["here"]["receipt"]["outcome"] == "applied"
    for change, finding in (
        ("received_at = received_at + interval '1 microsecond'", "other_time"),
        ("outcome = 'stale'", "other_outcome"),
        ("body_sha256 = sha256('other')", "other_body"),
    ):
        sides.at_receiver(f"UPDATE payouts.inbox SET {change} WHERE key = %s")
        comparison = compared(sides, code=ExitCode.DEGRADED)
        assert the_one(comparison, finding)["subject"] == "m_2"
        assert comparison["findings"]["agreed"] == 1


@pytest.mark.rest
def test_what_needs_nobody_is_shown_and_ends_well(sides: Sides) -> None:
    """No receipt here, a key of another sender there, an entry whose day was dropped."""
    sides.db.execute("UPDATE holdfast.attempt SET receipt = NULL WHERE subject_id IN (1, 3)")
    sides.db.execute("DELETE FROM holdfast.entry WHERE subject_id = 3")
    with sides.receiver.transaction():
        sides.receiver.execute(
            "INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome)"
            " VALUES ('hf_' || repeat('0', 32), sha256('x'), E'm\\x1b[2J', 7, 'applied')"
        )
    comparison = compared(sides)
    assert the_one(comparison, "no_receipt")["subject"] == "m_1"
    assert the_one(comparison, "pruned_here")["key"] is None
    stranger = the_one(comparison, "only_there")
    assert (stranger["key"], stranger["here"]) == (f"hf_{'0' * 32}", None)
    assert comparison["findings"]["agreed"] == 1
    text = holdfast(*ALL, "--receiver", sides.receiver_dsn, dsn=sides.dsn).stdout
    assert "\x1b" not in text
    assert f"  hf_{'0' * 32}  m\\x1b[2J 7; here: nothing; there: applied" in text
    assert "rotate it." in text


@pytest.mark.rest
def test_entry_whose_day_was_dropped_is_compared_by_its_receipt(sides: Sides) -> None:
    sides.db.execute("DELETE FROM holdfast.entry WHERE subject_id <= 3")
    assert compared(sides)["findings"]["agreed"] == len(DELIVERED)
    sides.at_receiver("DELETE FROM payouts.inbox WHERE key = %s")
    assert the_one(compared(sides, code=ExitCode.DEGRADED), "missing_there")["subject"] == "m_2"


@pytest.mark.rest
def test_first_attempt_that_is_under_way_is_undelivered_here(sides: Sides) -> None:
    sides.db.execute("DELETE FROM holdfast.attempt WHERE outcome = 'unknown'")
    assert compared(sides)["undelivered"] == 0
    sides.db.execute(
        "UPDATE holdfast.lane SET token = gen_random_uuid(), lease_until = now() + interval '1 h'"
        " WHERE delivered_sequence < last_sequence"
    )
    under_way = the_one(compared(sides), "undelivered_here")
    assert under_way["here"]["last_outcome"] == "in_flight"


@pytest.mark.rest
def test_range_and_subject_choose_what_is_compared(sides: Sides) -> None:
    comparison = compared(sides, "--subject", "m_2")
    assert (comparison["delivered"], comparison["undelivered"], comparison["subject"]) == (
        1,
        0,
        "m_2",
    )
    comparison = compared(sides, "--subject", UNANSWERED, "--since", "2020-01-01T00:00:00Z")
    assert (comparison["delivered"], comparison["undelivered"]) == (0, 1)
    for options, words in (
        (("--until", "1h"), "no attempt was made"),
        (("--subject", "m_9"), "'m_9'"),
        (("--endpoint", "other"), "no endpoint 'other'"),
    ):
        done = holdfast(*ALL, *options, dsn=sides.dsn, code=ExitCode.NOTHING_MATCHED)
        assert words in done.stderr


@pytest.mark.rest
def test_without_a_receiver_deliveries_are_counted_by_receipt(sides: Sides) -> None:
    sides.db.execute("UPDATE holdfast.attempt SET receipt = NULL WHERE subject_id <= 2")
    done = holdfast(*ALL, "--limit", "1", "--json", dsn=sides.dsn, code=ExitCode.OK)
    data = done.json
    assert data["receipts"] == {"applied": 1, "duplicate": 0, "stale": 0, "none": 2}
    counted = {"no_receipt": 2, "stale_there": 0, "overtaken": 0}
    assert (data["undelivered"], data["findings"]) == (1, counted)
    assert [row["subject"] for row in data["differences"]] == ["m_1"]
    assert "limited to 1 of each kind" in holdfast(*ALL, "--limit", "1", dsn=sides.dsn).stdout


@pytest.mark.rest
def test_decision_refused_as_stale_is_not_reported_as_applied(sides: Sides) -> None:
    """An outbox whose numbering began again: the receiver had a higher sequence of the subject."""
    sides.at_receiver("UPDATE payouts.inbox SET outcome = 'stale' WHERE key = %s")
    sides.db.execute(
        "UPDATE holdfast.attempt SET receipt = replace(receipt, '\"applied\"', '\"stale\"')"
        " WHERE subject_id = 2"
    )
    comparison = compared(sides, code=ExitCode.DEGRADED)
    stale = the_one(comparison, "stale_there")
    assert (stale["subject"], stale["there"]["outcome"]) == ("m_2", "stale")
    assert comparison["findings"]["agreed"] == len(DELIVERED) - 1
    assert "not applied" in comparison["meaning"]["stale_there"]

    done = holdfast(*ALL, "--json", dsn=sides.dsn, code=ExitCode.DEGRADED)
    assert the_one(done.json, "stale_there")["key"] == key_text("m_2")

    sides.db.execute(
        "INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at,"
        " token, outcome, status) SELECT endpoint_id, subject_id, 2, 1, finished_at - interval"
        " '1 s', token, outcome, status FROM holdfast.attempt WHERE subject_id = 2"
    )
    comparison = compared(sides, "--subject", "m_2")
    assert the_one(comparison, "overtaken")["sequence"] == 1
    assert comparison["findings"]["stale_there"] == 0, (
        "a later one had been delivered from here before"
    )


@pytest.mark.rest
def test_unreadable_receiver_is_reported_without_its_address(sides: Sides) -> None:
    for receiver, options, code, words in (
        ("host=/nowhere password=canary", (), ExitCode.FAILED, "cannot be reached"),
        ("postgresql://u:canary@[", (), ExitCode.USAGE, "cannot be read"),
        ("env:NO_SUCH_canary", (), ExitCode.USAGE, "is not set"),
        (sides.receiver_dsn, ("--schema", "nope"), ExitCode.FAILED, "no inbox in the schema"),
        (sides.receiver_dsn, ("--inquiry", "http://x"), ExitCode.USAGE, "exclude each other"),
        (sides.receiver_dsn, ("--since", "soon"), ExitCode.USAGE, "or a time with a zone"),
        (sides.receiver_dsn, ("--since", "1h", "--until", "2h"), ExitCode.USAGE, "not before"),
    ):
        done = holdfast(*ALL, "--receiver", receiver, *options, dsn=sides.dsn)
        assert (done.returncode, words in done.stderr) == (code, True), done.stderr
        assert "Traceback" not in done.stderr
        assert "password=canary" not in done.stderr
        assert "u:canary" not in done.stderr


@pytest.mark.rest
def test_comparison_changes_nothing_on_either_side(sides: Sides) -> None:
    """Nor does it wait for a lock that keeps every writer of the inbox out."""
    before = _counters(sides.receiver), _counters(sides.db)
    with sides.receiver.transaction():
        sides.receiver.execute("LOCK TABLE payouts.inbox IN SHARE ROW EXCLUSIVE MODE")
        compared(sides)
    assert (_counters(sides.receiver), _counters(sides.db)) == before


def _counters(db: psycopg.Connection) -> list[tuple[Any, ...]]:
    db.execute("SELECT pg_stat_force_next_flush()")
    return db.execute(
        "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables ORDER BY relid"
    ).fetchall()


def asked(sides: Sides, url: str, secret: str | None = None) -> tuple[int, Any, str]:
    """What `--inquiry` finds: exit code, JSON, complaint."""
    done = holdfast(
        *(*ALL, "--inquiry", url, "--json"),
        dsn=sides.dsn,
        environment={SECRET: secret or secret_text()},
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


@pytest.mark.rest
def test_inquiry_is_signed_at_database_time(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = SimpleNamespace(time=lambda: time.time() + 600)
    monkeypatch.setattr(key_inquiry, "time", wrong, raising=False)
    with payouts(sides.receiver_dsn) as service:
        code, _, complaint = asked(sides, service.url)
    assert code == ExitCode.OK, complaint


@pytest.mark.rest
def test_receiver_is_asked_over_http(sides: Sides) -> None:
    with payouts(sides.receiver_dsn) as service:
        code, comparison, complaint = asked(sides, service.url)
        assert code == ExitCode.OK, complaint
        assert comparison["compared_with"] == "inquiry"
        assert comparison["findings"]["agreed"] == len(DELIVERED)
        assert the_one(comparison, "undelivered_here")["subject"] == UNANSWERED

        sides.at_receiver("DELETE FROM payouts.inbox WHERE key = %s")
        sides.at_receiver(
            "UPDATE payouts.inbox SET body_sha256 = sha256('x') WHERE key = %s", "m_3"
        )
        code, comparison, complaint = asked(sides, f"{service.url}/holdfast/keys/")
        assert code == ExitCode.DEGRADED, complaint
        assert the_one(comparison, "missing_there")["subject"] == "m_2"
        assert the_one(comparison, "other_body")["subject"] == "m_3"

        for url, secret, words in (
            (service.url, secret_text(OTHER_KEY_BYTES), "401 (no_match)"),
            (f"{service.url}/elsewhere", None, "it answered 404"),
            ("http://10.255.255.1", None, "private"),
            (f"{service.url}/?a=1", None, "query"),
        ):
            code, _, complaint = asked(sides, url, secret)
            assert (code, words in complaint) == (ExitCode.FAILED, True), complaint
            assert "Traceback" not in complaint
    code, _, complaint = asked(sides, service.url, "whsec_broken")
    assert (code, "where the endpoint's secrets are" in complaint) == (ExitCode.FAILED, True)


APPLIED_LATE = """
    INSERT INTO payouts.inbox
    SELECT 'hf_' || repeat('0', 32), body_sha256, subject, 2, 'applied', NULL,
        received_at - interval '1 s' FROM payouts.inbox WHERE subject = 'm_3'
"""


@pytest.fixture(scope="module")
def checked_sides(server_dsn: str, template_database: str) -> Iterator[Sides]:
    """Both databases after three deliveries with a receipt and one that lost its answer."""
    with (
        pytest.MonkeyPatch.context() as environment,
        copy_of(server_dsn, template_database) as dsn,
        empty_database(server_dsn) as receiver_dsn,
    ):
        environment.setenv(SECRET, secret_text())
        deliver_all(dsn, receiver_dsn)
        with copies(server_dsn, dsn, receiver_dsn) as checked_sides:
            yield checked_sides


def checked(checked_sides: Sides, receiver: str, code: ExitCode) -> dict[str, Any]:
    return holdfast(
        *("check", "--endpoint", "payouts", "--receiver", receiver, "--json"),
        dsn=checked_sides.dsn,
        environment={"THEIRS": checked_sides.receiver_dsn, SECRET: secret_text()},
        code=code,
    ).json


def test_obedient_receiver_holds_and_lost_answer_violates_nothing(checked_sides: Sides) -> None:
    checks = checked(checked_sides, "env:THEIRS", ExitCode.OK)
    assert checks["counted"]["receiver_agreed"] == len(DELIVERED)
    assert checks["counted"]["receiver_undelivered_here"] == 1
    assert checks["counted"]["receiver_overtaken"] == 0
    assert checks["counted"]["unknown_outcomes"] == 1
    with payouts(checked_sides.receiver_dsn) as service:
        assert checked(checked_sides, service.url, ExitCode.OK)["counted"] == checks["counted"]
        done = holdfast(
            *("check", "--endpoint", "payouts", "--receiver", service.url),
            dsn=checked_sides.dsn,
            environment={SECRET: secret_text(OTHER_KEY_BYTES)},
        )
        assert done.returncode == ExitCode.FAILED
        assert "the receiver cannot be queried" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("change", "rule", "subject"),
    [
        ("DELETE FROM payouts.inbox WHERE subject = 'm_1'", "receiver_lost", "m_1"),
        (
            "UPDATE payouts.inbox SET body_sha256 = sha256('x') WHERE subject = 'm_2'",
            "receiver_body",
            "m_2",
        ),
        (
            "UPDATE payouts.inbox SET outcome = 'stale' WHERE subject = 'm_2'",
            "receiver_outcome",
            "m_2",
        ),
        (APPLIED_LATE, "receiver_order", "m_3"),
    ],
)
def test_receiver_difference_is_named(
    checked_sides: Sides, change: str, rule: str, subject: str
) -> None:
    checked_sides.receiver.execute("CREATE TABLE kept AS TABLE payouts.inbox")
    try:
        checked_sides.receiver.execute(change.encode())
        checks = checked(checked_sides, "env:THEIRS", ExitCode.FAILED)
    finally:
        checked_sides.receiver.execute("DELETE FROM payouts.inbox")
        checked_sides.receiver.execute("INSERT INTO payouts.inbox TABLE kept")
        checked_sides.receiver.execute("DROP TABLE kept")
    assert checks["violated"] == {rule: 1}
    assert checks["violations"][0]["subject"] == subject


def test_receiver_of_one_of_two_endpoints_is_compared(checked_sides: Sides) -> None:
    settings = {"THEIRS": checked_sides.receiver_dsn, SECRET: secret_text()}
    added = holdfast(
        *(
            "endpoint",
            "add",
            "ledger",
            "--url",
            "http://localhost:9/",
            "--allow-cidr",
            "127.0.0.1/32",
        ),
        *("--secret-ref", f"env:{SECRET}"),
        dsn=checked_sides.dsn,
        environment=settings,
    )
    assert added.returncode == ExitCode.OK, added.stderr
    command = ("check", "--receiver", "env:THEIRS", "--json")
    codes = {
        named: holdfast(
            *command,
            *(("--receiver-endpoint", named) if named else ()),
            dsn=checked_sides.dsn,
            environment=settings,
        )
        for named in ("", "payouts", "nobody")
    }
    assert codes[""].returncode == ExitCode.USAGE
    assert codes["nobody"].returncode == ExitCode.NOTHING_MATCHED
    data = json.loads(codes["payouts"].stdout)
    # The endpoint of this scene was made without an audit row; nothing else is violated.
    assert {each["rule"] for each in data["violations"]} == {"unaudited"}
    assert data["counted"]["receiver_agreed"] == len(DELIVERED)
