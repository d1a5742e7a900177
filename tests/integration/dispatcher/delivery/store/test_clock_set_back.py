"""A database whose clock was set back: moments that it wrote before are in its future."""

import json
from typing import Any

import psycopg
import pytest

from holdfast.dispatcher.operators.endpoints.store import Endpoints
from holdfast.sink.contract.exits import ExitCode
from tests.support.command import holdfast
from tests.support.dispatch.delivery import lanes, make_due
from tests.support.dispatch.dispatching import add_endpoint, drain
from tests.support.dispatch.replaying import DELIVERED, applied
from tests.support.dispatch.webhooks import WebhookReceiver, answer
from tests.support.job.decisions import Decisions

pytestmark = pytest.mark.rest

STALL = """
    UPDATE holdfast.endpoint_pace
    SET stalled_since = now() - interval '1 minute', stalled_until = now() - interval '2 minutes'"""
STANDS = "SELECT paused, stalled_us, stalled_until FROM holdfast.endpoint_pace"


def test_endpoint_is_paused_and_resumed_though_its_stall_ended_before_it_began(
    dsn: str, db: psycopg.Connection
) -> None:
    add_endpoint(db, "http://127.0.0.1:1/")
    db.execute(STALL.encode())
    done = holdfast("endpoint", "pause", "payouts", "--reason", "tests", dsn=dsn)
    assert done.returncode == 0, done.stderr
    assert db.execute(STANDS).fetchall() == [(True, 0, None)]
    db.execute("""
        UPDATE holdfast.endpoint_pace
        SET held_until = now() + interval '1 minute', stalled_since = now() + interval '2 minutes'
    """)
    done = holdfast("endpoint", "resume", "payouts", "--reason", "tests", dsn=dsn)
    assert done.returncode == 0, done.stderr
    query = "SELECT stalled_until >= stalled_since FROM holdfast.endpoint_pace"
    assert db.execute(query).fetchall() == [(True,)]


HOURS = """
    UPDATE holdfast.endpoint_pace
    SET breaker_until = breaker_until + interval '10 hours',
        breaker_since = breaker_since + interval '10 hours',
        held_until = held_until + interval '10 hours',
        stalled_since = stalled_since + interval '10 hours',
        stalled_until = stalled_until + interval '10 hours'"""
OPENED = """
    UPDATE holdfast.endpoint_pace
    SET breaker = 'open', breaker_until = now() + interval '10 hours'"""
LONGEST = """
    SELECT coalesce(breaker_until <= clock_timestamp() + interval '6 minutes', true),
           coalesce(held_until <= clock_timestamp() + interval '24 hours', true)
    FROM holdfast.endpoint_pace"""
OVER = """
    UPDATE holdfast.endpoint_pace
    SET breaker_until = breaker_until - interval '6 minutes',
        held_until = held_until - interval '24 hours'"""


@pytest.mark.parametrize("status", [500, 429])
def test_opening_and_hold_are_as_long_as_the_longest_at_most(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver, status: int
) -> None:
    """The clock went back ten hours; then the longest opening, or hold, goes by."""
    add_endpoint(db, receiver.url, breaker_threshold=int(status == 500))
    decisions.write("m_1")
    receiver.script = lambda _: answer(status, retry_after="86400")
    drain(dsn)
    db.execute(HOURS.encode())
    drain(dsn)
    assert db.execute(LONGEST).fetchall() == [(True, True)]
    receiver.script = lambda _: answer(200)
    db.execute(OVER.encode())
    make_due(db)
    assert drain(dsn).counts["delivered"] == 1


def test_replay_goes_on_after_the_longest_opening(
    dsn: str, db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver
) -> None:
    add_endpoint(db, receiver.url)
    decisions.write("m_1")
    drain(dsn)
    db.execute(OPENED.encode())
    applied(dsn, DELIVERED)
    drain(dsn)
    assert db.execute(LONGEST).fetchall() == [(True, True)]
    db.execute(OVER.encode())
    assert drain(dsn).counts["delivered"] == 1


AHEAD = """
    UPDATE holdfast.endpoint
    SET starts_at = starts_at + interval '1 hour', created_at = created_at + interval '1 hour'"""
ROUTED = "UPDATE holdfast.batch SET routed_at = now()"


@pytest.fixture
def behind(db: psycopg.Connection, decisions: Decisions, receiver: WebhookReceiver) -> Decisions:
    """An endpoint for decisions from its start on, and a clock an hour behind that start."""
    decisions.write("old")
    db.execute(ROUTED)
    add_endpoint(db, receiver.url, starts_at=_now(db))
    db.execute(AHEAD)
    return decisions


def test_endpoint_gets_what_is_decided_while_the_clock_is_behind_its_start(
    dsn: str, db: psycopg.Connection, behind: Decisions, receiver: WebhookReceiver
) -> None:
    behind.write("m_1", "m_2")
    drain(dsn)
    assert {seen.subject for seen in receiver.seen} == {"m_1", "m_2"}
    behind.write("old")
    drain(dsn)
    assert lanes(db)["old"][:2] == (2, 2)
    assert len(receiver.seen) == 3


def test_check_finds_what_no_lane_came_to_while_the_clock_was_behind(
    dsn: str, db: psycopg.Connection, behind: Decisions, receiver: WebhookReceiver
) -> None:
    behind.write("m_1", "m_2")
    db.execute(ROUTED)
    assert _unreached(dsn) == 2
    with Endpoints.connect(dsn) as store:
        assert (store.backfill("payouts"), store.backfill("payouts")) == (2, 0)
    assert _unreached(dsn) == 0
    drain(dsn)
    assert {seen.subject for seen in receiver.seen} == {"m_1", "m_2"}


@pytest.mark.usefixtures("behind")
def test_status_says_that_the_clock_is_behind_what_is_stored(dsn: str) -> None:
    found = _json(dsn, "status", code=ExitCode.DEGRADED)
    assert [each["kind"] for each in found["needs"] if each["kind"] == "clock_behind"]


def _unreached(dsn: str) -> int:
    # The endpoint was added by hand, so that the trail does not know it.
    violated: dict[str, int] = _json(dsn, "check", code=ExitCode.FAILED)["violated"]
    return violated.get("entry_unreached", 0)


def _now(db: psycopg.Connection) -> Any:
    (at,) = db.execute("SELECT clock_timestamp()").fetchone() or ()
    return at


def _json(dsn: str, *arguments: str, code: ExitCode) -> Any:
    done = holdfast(*arguments, "--json", dsn=dsn)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)
