"""What triage makes of the overview's facts: the cause, whom it touches, and the order of harm."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.api.console.routes.overview import PLACES
from holdfast.dispatcher.operators.overview.rules import NeedKind, overview_needs
from holdfast.dispatcher.operators.triage.rules import (
    CAUSES,
    JOB_STOPPED,
    OF_ENDPOINTS,
    findings,
)
from holdfast.dispatcher.shared.states import BARRED, CREDENTIALS
from tests.unit.dispatcher.operators.test_overview import QUIET, SESSION, endpoint_row

AT = datetime(2026, 11, 2, 3, tzinfo=UTC)
LATE = {"late": 1, "head_created_at": AT - timedelta(hours=6), "age_seconds": 21_600.0}
REFUSED = {"subject": "m_1", "number": 3, "outcome": "failed", "status": 503, "error": None}


def _waiting(endpoint: str, subjects: int, *money: tuple[str, int]) -> dict[str, Any]:
    since = AT - timedelta(hours=6)
    return {"endpoint": endpoint, "subjects": subjects, "since": since, "money": list(money)}


def _findings(**changes: Any) -> list[dict[str, Any]]:
    more = {"waiting": [], "dead": [], "stopped_jobs": [], "oldest": {"at": AT}}
    facts = {**QUIET, **more, **changes}
    return [each.row() for each in findings(facts, overview_needs(facts))]


def test_each_need_has_a_place_and_a_cause() -> None:
    assert {*CAUSES} == {*NeedKind, JOB_STOPPED} - {NeedKind.STOPPED_LANES}
    without = {kind for kind, cause in CAUSES.items() if not cause.text}
    assert without == OF_ENDPOINTS - {NeedKind.NOT_CLAIMED} | {NeedKind.DEAD_LETTERS}


def test_console_has_a_page_for_each_kind_of_finding() -> None:
    assert PLACES.keys() == CAUSES.keys()


def test_nothing_is_wrong_where_nothing_needs_a_person() -> None:
    assert _findings(waiting=[_waiting("payouts", 3)]) == []


def test_cause_of_an_endpoint_is_the_first_that_explains_it() -> None:
    late = {"endpoint": "payouts", **LATE, **REFUSED}
    expected: dict[str, dict[str, Any]] = {
        "a person paused the endpoint (work)": {"state": "paused", "state_reason": "work"},
        f"{BARRED}: 10.0.0.1": {
            "breaker_open_seconds": 1.0,
            "breaker_reason": f"{BARRED}: 10.0.0.1",
        },
        f"{CREDENTIALS} (401)": {
            "breaker_open_seconds": 1.0,
            "breaker_reason": f"{CREDENTIALS} (401)",
        },
        "the breaker is open for 1 min, after 5 failures": {
            "breaker_open_seconds": 60.0,
            "breaker_reason": "5 failures",
        },
        "no dispatcher claims them": {"not_claimed": True},
        "attempt 3 ended failed (HTTP 503)": {},
    }
    for cause, changes in expected.items():
        [one] = _findings(
            endpoints=[endpoint_row("payouts", **changes)],
            undelivered=[late],
            waiting=[_waiting("payouts", 2, ("USD", 500), ("EUR", 1), ("USD", 7))],
        )
        assert one["cause"].startswith(cause)
        assert (one["where"], one["subjects"]) == ("payouts", 2)
        assert one["amounts"] == [
            {"currency": "EUR", "minor": 1},
            {"currency": "USD", "minor": 507},
        ]
        assert one["since"] == AT - timedelta(hours=6)


def test_endpoint_that_touches_more_subjects_comes_first() -> None:
    late = [{"endpoint": name, **LATE, **REFUSED} for name in ("a", "b")]
    rows = _findings(
        endpoints=[endpoint_row("a"), endpoint_row("b")],
        undelivered=late,
        waiting=[_waiting("a", 1), _waiting("b", 40)],
    )
    assert [each["where"] for each in rows] == ["b", "a"]


def test_what_stops_all_delivery_explains_every_endpoint() -> None:
    [one] = _findings(
        dispatchers_alive=0,
        endpoints=[endpoint_row("payouts")],
        undelivered=[{"endpoint": "payouts", **LATE, **REFUSED}],
        waiting=[_waiting("payouts", 4, ("USD", 9))],
        oldest={"at": AT, "no_dispatcher": AT - timedelta(hours=1)},
    )
    assert (one["kind"], one["subjects"]) == ("no_dispatcher", 4)
    assert one["amounts"] == [{"currency": "USD", "minor": 9}]
    assert one["since"] == AT - timedelta(hours=1)


def test_clock_that_was_set_back_hides_no_endpoint() -> None:
    """What the old clock leased waits; a receiver that is down is one more thing that is wrong."""
    rows = _findings(
        clock_behind_seconds=3600.0,
        endpoints=[endpoint_row("payouts", breaker_open_seconds=1e6, breaker_reason="5 failures")],
        waiting=[_waiting("payouts", 4)],
    )
    assert [each["kind"] for each in rows] == ["clock_behind", "breakers_open"]


def test_dead_letters_are_told_apart_by_endpoint_and_reason() -> None:
    letters = {
        "since": AT,
        "complete": True,
        "subjects": 1,
        "money": [["USD", 5]],
        "detail": "HTTP 422",
    }
    rows = _findings(
        dead_letters=4,
        stopped_lanes=2,
        dead=[
            {"endpoint": "payouts", "reason": "rejected", "letters": 1, **letters},
            {"endpoint": "payouts", "reason": "exhausted", "letters": 3, **letters, "subjects": 3},
        ],
    )
    assert [each["subjects"] for each in rows] == [3, 1]
    assert rows[1]["sentence"] == (
        "payouts: 1 dead letter is open (rejected), of 1 subject; what follows for them waits"
    )
    assert (rows[1]["cause"], rows[1]["page"]) == ("the newest: HTTP 422", "one-rejected")


def test_stream_without_a_sink_names_its_newest_batch() -> None:
    row = {"name": "holds", "batch_id": 41, "since": AT - timedelta(hours=2)}
    [one] = _findings(stopped_jobs=[row])
    assert (one["kind"], one["where"], one["page"]) == (JOB_STOPPED, "holds", "job-stopped")
    assert "41, is 2 h old" in one["sentence"]


FACTS = st.fixed_dictionaries(
    {
        "read_only": st.booleans(),
        "dispatchers_alive": st.integers(0, 1),
        "clock_behind_seconds": st.sampled_from([None, 3600.0]),
        "quarantined": st.integers(0, 1),
        "silenced": st.integers(0, 1),
        "stale": st.sampled_from([[], ["payouts"]]),
        "days_ahead": st.sampled_from([-1, 7]),
        "snapshots": st.sampled_from([[], [SESSION]]),
        "endpoints": st.sampled_from(
            [
                [endpoint_row("payouts", not_claimed=True, due_lanes=1)],
                [endpoint_row("payouts", state="disabled")],
                [endpoint_row("payouts", breaker_open_seconds=1e6, breaker_reason="x")],
            ]
        ),
    }
)


@given(FACTS)
def test_every_need_is_a_finding_or_explained_by_one_that_stops_delivery(
    facts: dict[str, Any],
) -> None:
    kinds = [each["kind"] for each in _findings(**facts)]
    needed = {need.kind.value for need in overview_needs({**QUIET, **facts})}
    missing = needed - {*kinds}
    stops = {"cannot_write", "no_dispatcher"} & needed
    assert missing <= ({*OF_ENDPOINTS} if stops else set())
    assert {*kinds} <= needed
    assert kinds == sorted(kinds, key=[*map(str, CAUSES)].index)
