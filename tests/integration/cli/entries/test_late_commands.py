"""`holdfast late list`: events that the exposure job did not apply."""

import json
from typing import Any

import psycopg
import pytest

from holdfast.sink.contract.exits import ExitCode
from holdfast.sink.contract.states import LateReason
from tests.support.command import holdfast

pytestmark = pytest.mark.rest


@pytest.fixture
def late(dsn: str, db: psycopg.Connection) -> str:
    """A database with an event of each reason, of two streams and two merchants."""
    db.execute("INSERT INTO holdfast.stream (name) VALUES ('payouts'), ('cards')")
    for number, reason in enumerate(LateReason):
        db.execute(
            "INSERT INTO holdfast.late_event (stream, reason, event_id, merchant_id, type,"
            " amount_minor, currency, occurred_at, watermark, written_at) VALUES"
            " (%s, %s, %s, %s, 'payout_submitted', -1800000, 'USD', '2026-11-02 12:14:59.5Z',"
            " '2026-11-02 12:17:30Z', '2026-11-02 13:00Z'::timestamptz + %s * interval '1 hour')",
            [("payouts", "cards")[number % 2], reason, f"e{number}", f"m_{number // 2}", number],
        )
    return dsn


def _listed(dsn: str, *words: str) -> dict[str, Any]:
    return holdfast("late", "list", *words, "--json", dsn=dsn, code=ExitCode.OK).json


def test_events_not_applied_have_a_reason_and_a_watermark(late: str) -> None:
    rows = _listed(late)["late_events"]
    assert [row["event_id"] for row in rows] == ["e3", "e2", "e1", "e0"]
    assert rows[-1] == {
        "id": rows[-1]["id"],
        "stream": "payouts",
        "reason": "late",
        "event_id": "e0",
        "merchant_id": "m_0",
        "type": "payout_submitted",
        "amount_minor": -1800000,
        "currency": "USD",
        "occurred_at": "2026-11-02T12:14:59.500000Z",
        "watermark": "2026-11-02T12:17:30Z",
        "written_at": "2026-11-02T13:00:00Z",
    }
    done = holdfast("late", "list", "--merchant", "m_0", dsn=late)
    assert (done.returncode, "e0" in done.stdout, "e2" in done.stdout) == (ExitCode.OK, True, False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--stream", "cards"), ["e3", "e1"]),
        (("--merchant", "m_1"), ["e3", "e2"]),
        (("--reason", "settled"), ["e3"]),
        (("--since", "2026-11-02T15:00:00Z"), ["e3", "e2"]),
        (("--stream", "payouts", "--merchant", "m_0"), ["e0"]),
    ],
)
def test_filters_choose(late: str, words: tuple[str, ...], expected: list[str]) -> None:
    assert [row["event_id"] for row in _listed(late, *words)["late_events"]] == expected


def test_pages_follow_each_other(late: str) -> None:
    seen: list[str] = []
    before: tuple[str, ...] = ()
    for _ in range(3):
        done = holdfast("late", "list", "--limit", "2", *before, "--json", dsn=late)
        page = json.loads(done.stdout)
        seen += [row["event_id"] for row in page["late_events"]]
        if page["next_before"] is None:
            break
        before = ("--before", str(page["next_before"]))
    assert seen == ["e3", "e2", "e1", "e0"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--merchant", "m_9"), ExitCode.NOTHING_MATCHED),
        (("--stream", "unknown"), ExitCode.NOTHING_MATCHED),
        (("--since", "tomorrow"), ExitCode.USAGE),
    ],
)
def test_no_match_exits_3_in_one_line(late: str, words: tuple[str, ...], code: ExitCode) -> None:
    done = holdfast("late", "list", *words, dsn=late)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.strip().splitlines()) == 1
