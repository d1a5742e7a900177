"""`holdfast check --receiver`: what the payouts service really applied, held against the outbox."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.compared import DELIVERED, Sides, copies, deliver_all
from tests.support.dispatch.dispatching import SECRET
from tests.support.dispatch.payouts import empty_database, payouts
from tests.support.dispatch.sender import OTHER_KEY_BYTES, secret_text
from tests.support.servers.databases import copy_of

APPLIED_LATE = """
    INSERT INTO payouts.inbox
    SELECT 'hf_' || repeat('0', 32), body_sha256, subject, 2, 'applied', NULL,
        received_at - interval '1 s' FROM payouts.inbox WHERE subject = 'm_3'
"""


@pytest.fixture(scope="module")
def sides(server_dsn: str, template_database: str) -> Iterator[Sides]:
    """Both databases after three deliveries with a receipt and one that lost its answer."""
    with (
        pytest.MonkeyPatch.context() as environment,
        copy_of(server_dsn, template_database) as dsn,
        empty_database(server_dsn) as receiver_dsn,
    ):
        environment.setenv(SECRET, secret_text())
        deliver_all(dsn, receiver_dsn)
        with copies(server_dsn, dsn, receiver_dsn) as sides:
            yield sides


def checked(sides: Sides, receiver: str, code: ExitCode) -> dict[str, Any]:
    return holdfast(
        *("check", "--endpoint", "payouts", "--receiver", receiver, "--json"),
        dsn=sides.dsn,
        environment={"THEIRS": sides.receiver_dsn, SECRET: secret_text()},
        code=code,
    ).json


def test_obedient_receiver_holds_and_lost_answer_violates_nothing(sides: Sides) -> None:
    checks = checked(sides, "env:THEIRS", ExitCode.OK)
    assert checks["counted"]["receiver_agreed"] == len(DELIVERED)
    assert checks["counted"]["receiver_undelivered_here"] == 1
    assert checks["counted"]["receiver_overtaken"] == 0
    assert checks["counted"]["unknown_outcomes"] == 1
    with payouts(sides.receiver_dsn) as service:
        assert checked(sides, service.url, ExitCode.OK)["counted"] == checks["counted"]
        done = holdfast(
            *("check", "--endpoint", "payouts", "--receiver", service.url),
            dsn=sides.dsn,
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
def test_receiver_difference_is_named(sides: Sides, change: str, rule: str, subject: str) -> None:
    sides.receiver.execute("CREATE TABLE kept AS TABLE payouts.inbox")
    try:
        sides.receiver.execute(change.encode())
        checks = checked(sides, "env:THEIRS", ExitCode.FAILED)
    finally:
        sides.receiver.execute("DELETE FROM payouts.inbox")
        sides.receiver.execute("INSERT INTO payouts.inbox TABLE kept")
        sides.receiver.execute("DROP TABLE kept")
    assert checks["violated"] == {rule: 1}
    assert checks["violations"][0]["subject"] == subject


def test_receiver_of_one_of_two_endpoints_is_compared(sides: Sides) -> None:
    settings = {"THEIRS": sides.receiver_dsn, SECRET: secret_text()}
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
        dsn=sides.dsn,
        environment=settings,
    )
    assert added.returncode == ExitCode.OK, added.stderr
    command = ("check", "--receiver", "env:THEIRS", "--json")
    codes = {
        named: holdfast(
            *command,
            *(("--receiver-endpoint", named) if named else ()),
            dsn=sides.dsn,
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
