"""What may be claimed of an endpoint, and what results change about that: numbers in, rows out."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.dispatcher.delivery.rules.lifecycle import Move
from holdfast.dispatcher.delivery.rules.pace import (
    CREDENTIALS_THRESHOLD,
    RAMP_DOUBLINGS,
    RAMP_PER_SECOND,
    Allowance,
    Limits,
    Pace,
    allowance,
    as_of,
    claimed,
    next_seconds,
    rate_of,
    settled,
)
from holdfast.dispatcher.delivery.rules.values import Attempt, Settlement
from holdfast.dispatcher.shared.rate import BEGIN_SECONDS, sustained
from holdfast.dispatcher.shared.states import CREDENTIALS
from holdfast.sink.contract.states import BreakerState, Outcome

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
CLOSED = Pace(endpoint_id=1, breaker=BreakerState.CLOSED, breaker_since=NOON, paid_until=NOON)
LIMITS = Limits(None, 3, 60, 30.0)
TOKEN = UUID(int=7)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def tried(
    *outcomes: Outcome,
    token: UUID = TOKEN,
    asked: float | None = None,
    ours: bool = False,
    unsent: int = 0,
    barred: bool = False,
) -> Settlement:
    attempts = tuple(
        Attempt(
            number,
            1,
            uuid4(),
            outcome,
            None,
            1,
            "reset",
            None,
            None,
            asked,
            ours=ours,
            barred=barred,
        )
        for number, outcome in enumerate(outcomes, 1)
    )
    return Settlement(1, 1, token, Move.RETRY, 0, 1, 0, attempts, trusted_until=0.0, unsent=unsent)


def judged(pace: Pace, *settlements: Settlement, at: float = 0, limits: Limits = LIMITS) -> Pace:
    return settled(pace, settlements, limits, after(at), draw=0.5)


def opened() -> Pace:
    return judged(CLOSED, *[tried(Outcome.FAILED)] * 3)


def probing(at: float = 10) -> Pace:
    allowed = allowance(opened(), LIMITS, 64, 8, after(at))
    return claimed(opened(), allowed, 1, after(at), TOKEN, 35.0)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.UNKNOWN, Outcome.THROTTLED])
def test_failures_in_a_row_open_the_breaker(outcome: Outcome) -> None:
    pace = judged(CLOSED, tried(outcome), tried(outcome))
    assert (pace.breaker, pace.failures) == (BreakerState.CLOSED, 2)
    pace = judged(pace, tried(outcome), at=1)
    assert pace.breaker is BreakerState.OPEN
    assert (pace.breaker_since, pace.breaker_until) == (after(1), after(6))
    assert pace.breaker_reason == "3 failures in a row, the last one had no answer: reset"


@pytest.mark.parametrize("outcome", [Outcome.DELIVERED, Outcome.REJECTED])
def test_answer_between_failures_keeps_the_breaker_closed(outcome: Outcome) -> None:
    failed = tried(Outcome.FAILED)
    pace = judged(CLOSED, failed, failed, tried(outcome), failed, failed)
    assert (pace.breaker, pace.failures) == (BreakerState.CLOSED, 2)


@pytest.mark.parametrize(
    ("settlement", "limits"),
    [
        (tried(Outcome.FAILED, ours=True), LIMITS),
        (tried(Outcome.UNKNOWN, ours=True), LIMITS),
        (tried(Outcome.REFUSED), LIMITS),
        (tried(), LIMITS),
        (tried(Outcome.FAILED), replace(LIMITS, breaker_threshold=0)),
    ],
)
def test_own_faults_and_threshold_0_never_open_it(settlement: Settlement, limits: Limits) -> None:
    assert judged(CLOSED, *[settlement] * 50, limits=limits) == CLOSED


def test_open_breaker_ignores_what_was_under_way() -> None:
    pace = opened()
    assert judged(pace, tried(Outcome.FAILED), tried(Outcome.DELIVERED), at=2) == pace


def test_nothing_is_claimed_while_open_and_then_one_entry_of_one_lane() -> None:
    assert allowance(opened(), LIMITS, 64, 8, after(4.9)) == Allowance(0, 0)
    assert allowance(opened(), LIMITS, 64, 8, after(5)) == Allowance(1, 1, probe=True)
    pace = probing()
    assert (pace.breaker, pace.probe, pace.breaker_until) == (
        BreakerState.HALF_OPEN,
        TOKEN,
        after(45),
    )
    assert allowance(pace, LIMITS, 64, 8, after(44)).lanes == 0


def test_probe_whose_lease_ran_out_is_followed_by_another() -> None:
    pace, other = probing(), uuid4()
    allowed = allowance(pace, LIMITS, 64, 8, after(45))
    assert allowed == Allowance(1, 1, probe=True)
    pace = claimed(pace, allowed, 1, after(45), other, 35.0)
    assert (pace.probe, pace.breaker_since) == (other, after(10))
    assert judged(pace, tried(Outcome.FAILED, token=TOKEN), at=46) == pace


def test_claim_that_found_nothing_is_no_probe() -> None:
    allowed = allowance(opened(), LIMITS, 64, 8, after(10))
    assert claimed(opened(), allowed, 0, after(10), TOKEN, 35.0) == opened()


def test_probe_that_fails_opens_the_breaker_for_longer() -> None:
    pace = judged(probing(), tried(Outcome.FAILED), at=11)
    assert pace.breaker is BreakerState.OPEN
    assert (pace.breaker_until, pace.probe) == (after(21), None)
    assert pace.breaker_reason == "the probe had no answer: reset"


@pytest.mark.parametrize(
    "settlement", [tried(), tried(Outcome.FAILED, ours=True), tried(Outcome.REFUSED)]
)
def test_probe_that_proves_nothing_is_free_for_another(settlement: Settlement) -> None:
    pace = judged(probing(), settlement, at=11)
    assert pace.breaker is BreakerState.HALF_OPEN
    assert allowance(pace, LIMITS, 64, 8, after(11)).probe


@pytest.mark.parametrize("outcome", [Outcome.DELIVERED, Outcome.REJECTED])
def test_answered_probe_begins_a_slow_start_that_ends_closed(outcome: Outcome) -> None:
    pace = judged(probing(), tried(outcome), at=20)
    assert (pace.breaker, pace.breaker_until) == (BreakerState.SLOW_START, after(80))
    counts = []
    for seconds in (0, 6, 12, 30, 59):
        allowed = allowance(pace, LIMITS, 10_000, 1, after(20 + seconds))
        assert allowed.fresh_from == after(20)
        counts.append(allowed.lanes)
    assert counts == [1, 1, 1, 6, 182]
    assert allowance(pace, LIMITS, 64, 8, after(80)) == Allowance(64, 8)
    pace = judged(pace, tried(Outcome.DELIVERED), at=81)
    assert (pace.breaker, pace.openings) == (BreakerState.CLOSED, 0)


@pytest.mark.parametrize("changed", [0, 1, 86_400])
def test_changed_length_does_not_affect_a_running_slow_start(changed: int) -> None:
    pace = judged(probing(), tried(Outcome.DELIVERED), at=20)
    limits = replace(LIMITS, slow_start_seconds=changed)
    for seconds in (0, 30, 59.9):
        before = allowance(pace, LIMITS, 10_000, 1, after(20 + seconds))
        assert allowance(pace, limits, 10_000, 1, after(20 + seconds)) == before


def test_breaker_opening_in_its_slow_start_stays_open_longer() -> None:
    pace = judged(probing(), tried(Outcome.DELIVERED), at=20)
    pace = judged(pace, *[tried(Outcome.FAILED)] * 3, at=22)
    assert (pace.breaker, pace.breaker_until) == (BreakerState.OPEN, after(32))


def test_retry_after_holds_the_endpoint_and_the_latest_wins() -> None:
    pace = judged(CLOSED, tried(Outcome.THROTTLED, asked=20), tried(Outcome.THROTTLED, asked=9))
    assert pace.held_until == after(20)
    assert allowance(pace, LIMITS, 64, 8, after(19.9)) == Allowance(0, 0)
    assert allowance(pace, LIMITS, 64, 8, after(20)) == Allowance(64, 8)
    assert judged(pace, tried(Outcome.THROTTLED, asked=5), at=1).held_until == after(20)
    assert judged(pace, tried(Outcome.THROTTLED, asked=10**7), at=1).held_until == after(86401)
    assert judged(CLOSED, tried(Outcome.FAILED, asked=20)).held_until is None


@given(
    rate=st.integers(1, 500),
    steps=st.lists(st.tuples(st.floats(0, 0.5), st.integers(0, 5)), min_size=1, max_size=60),
)
def test_no_second_has_more_than_the_rate(rate: int, steps: list[tuple[float, int]]) -> None:
    """A process sends what it claims within `BEGIN_SECONDS`, or releases it."""
    limits, pace, now = replace(LIMITS, rate_per_second=rate), CLOSED, 0.0
    sent: list[tuple[float, int]] = []
    for pause, unsent in steps:
        now += pause
        allowed = allowance(pace, limits, 64, 8, after(now))
        count = allowed.lanes * allowed.entries
        pace = claimed(pace, allowed, count, after(now), TOKEN, 35.0)
        back = min(unsent, count)
        pace = judged(pace, tried(unsent=back), at=now, limits=limits)
        sent.append((now, count - back))
    for begin, (start, _) in enumerate(sent):
        for end in range(begin, len(sent)):
            # The first may be begun so late that all of it comes within the second.
            if sent[end][0] - start - BEGIN_SECONDS < 1:
                assert sum(count for _, count in sent[begin : end + 1]) <= rate


@pytest.mark.parametrize("rate", [1, 7, 100, 5_000])
def test_claims_at_each_due_time_get_all_that_the_rate_sustains(rate: int) -> None:
    limits, pace, now, count = replace(LIMITS, rate_per_second=rate), CLOSED, 0.0, 0
    while now < 20:
        allowed = allowance(pace, limits, 64, 1, after(now))
        pace = claimed(pace, allowed, allowed.lanes, after(now), TOKEN, 35.0)
        count += allowed.lanes
        now += max(next_seconds(pace, sustained(rate), after(now)), 1e-6)
    assert 20 * sustained(rate) - 1 <= count <= 20 * sustained(rate) + max(1, rate * 0.05)


def running_us(pace: Pace, at: float) -> int:
    """The running clock, as the statements compute it, from noon."""
    now = after(at)
    if pace.stalled_since is not None:
        end = pace.stalled_until
        over = max(now - end, timedelta()) if end is not None else timedelta()
        now = min(now, pace.stalled_since) + over
    return (now - NOON) // timedelta(microseconds=1) - pace.stalled_us


def test_running_clock_pauses_while_the_breaker_is_open() -> None:
    pace = judged(probing(), tried(Outcome.DELIVERED), at=20)
    assert running_us(opened(), 15) == 0
    assert running_us(pace, 25) == 5_000_000


def test_running_clock_pauses_in_a_hold_and_counts_seconds_once() -> None:
    unbroken, wait = replace(LIMITS, breaker_threshold=0), tried(Outcome.THROTTLED, asked=10)
    held = judged(CLOSED, wait, at=1, limits=unbroken)
    assert [running_us(held, at) for at in (1, 5, 11, 12)] == [10**6, 10**6, 10**6, 2 * 10**6]
    longer = judged(held, wait, at=5, limits=unbroken)
    assert [running_us(longer, at) for at in (5, 15, 16)] == [10**6, 10**6, 2 * 10**6]
    later = judged(longer, wait, at=20, limits=unbroken)
    assert [running_us(later, at) for at in (20, 30, 31)] == [6 * 10**6, 6 * 10**6, 7 * 10**6]
    broken = judged(held, *[tried(Outcome.FAILED)] * 3, at=5)
    assert running_us(broken, 1000) == 10**6
    probed = judged(
        replace(broken, breaker=BreakerState.HALF_OPEN, probe=TOKEN), tried(Outcome.DELIVERED), at=8
    )
    assert [running_us(probed, at) for at in (8, 11, 12)] == [10**6, 10**6, 2 * 10**6]


def test_paused_endpoint_has_a_clock_that_no_probe_starts() -> None:
    pace = replace(probing(), paused=True)
    assert running_us(judged(pace, tried(Outcome.DELIVERED), at=20), 500) == 0


@pytest.mark.parametrize("at", [19.9, 20])
def test_zero_length_slow_start_is_none_in_any_transaction_order(at: float) -> None:
    """A claim's `now()` may lie before that of the settlement whose row it then waits for."""
    limits = replace(LIMITS, slow_start_seconds=0)
    pace = judged(probing(), tried(Outcome.DELIVERED), at=20, limits=limits)
    assert rate_of(pace, limits, after(at)) in (None, RAMP_PER_SECOND * 2**RAMP_DOUBLINGS)
    assert allowance(pace, limits, 64, 8, after(20)).lanes == 64


def test_clock_set_back_never_gives_a_negative_stall() -> None:
    stalled = replace(judged(CLOSED, *[tried(Outcome.FAILED)] * 3, at=50), probe=TOKEN)
    # Set back by two minutes, the hold that a receiver asks for ends before the stall began.
    held = judged(stalled, tried(Outcome.THROTTLED, asked=10), at=-100)
    answered = judged(
        replace(held, breaker=BreakerState.HALF_OPEN), tried(Outcome.DELIVERED), at=-95
    )
    assert answered.stalled_since is not None
    assert answered.stalled_until is not None
    assert answered.stalled_until >= answered.stalled_since
    again = judged(answered, tried(Outcome.THROTTLED, asked=10), at=60)
    assert again.stalled_us >= 0
    stored = replace(answered, stalled_until=after(-90))
    assert judged(stored, tried(Outcome.THROTTLED, asked=10), at=60).stalled_us == 0


@pytest.mark.parametrize("threshold", [0, 1, 10])
def test_refused_address_opens_the_breaker_at_any_threshold(threshold: int) -> None:
    limits, refused = (
        replace(LIMITS, breaker_threshold=threshold),
        tried(Outcome.REFUSED, barred=True),
    )
    pace = judged(CLOSED, refused, limits=limits)
    assert (pace.breaker, pace.breaker_until) == (BreakerState.OPEN, after(5))
    assert pace.breaker_reason is not None
    assert pace.breaker_reason.endswith("reset")
    assert running_us(pace, 1000) == 0
    pauses = []
    for _ in range(8):
        assert pace.breaker_until is not None
        at = (pace.breaker_until - NOON).total_seconds()
        allowed = allowance(pace, limits, 64, 8, after(at))
        assert allowed == Allowance(1, 1, probe=True)
        pace = judged(
            claimed(pace, allowed, 1, after(at), TOKEN, 35.0), refused, at=at, limits=limits
        )
        assert pace.breaker_until is not None
        pauses.append((pace.breaker_until - after(at)).total_seconds())
    assert pauses == [10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(("threshold", "opens_at"), [(3, 3), (0, CREDENTIALS_THRESHOLD)])
def test_refused_credentials_open_the_breaker(threshold: int, opens_at: int) -> None:
    limits = replace(LIMITS, breaker_threshold=threshold)
    (attempt,) = tried(Outcome.FAILED).attempts
    refused = replace(tried(), attempts=(replace(attempt, status=401),))
    pace = judged(CLOSED, *[refused] * (opens_at - 1), limits=limits)
    delivered = judged(pace, tried(Outcome.DELIVERED), refused, limits=limits)
    assert (delivered.breaker, delivered.failures) == (BreakerState.CLOSED, 1)
    pace = judged(pace, refused, limits=limits)
    for reason in ("failures in a row", "the probe"):
        assert pace.breaker is BreakerState.OPEN
        assert (pace.breaker_reason or "").startswith(CREDENTIALS)
        assert reason in (pace.breaker_reason or "")
        assert running_us(pace, 1000) == 0
        allowed = allowance(pace, limits, 64, 8, after(5))
        pace = judged(
            claimed(pace, allowed, 1, after(5), TOKEN, 35.0), refused, at=5, limits=limits
        )


@given(rate=st.integers(1, 5_000), ahead=st.floats(0, 1e6), reads=st.integers(1, 20))
def test_debt_delays_a_claim_by_two_seconds_at_most(rate: int, ahead: float, reads: int) -> None:
    """As after a clock that was set back; reads in between do not extend it."""
    limits = replace(LIMITS, rate_per_second=rate)
    pace = replace(CLOSED, paid_until=after(ahead))
    for read in range(reads):
        at = 2.0 * read / reads
        pace = judged(pace, at=at, limits=limits)
        assert next_seconds(pace, sustained(rate), after(at)) <= 2.0 - at + 1e-6
    assert allowance(judged(pace, at=2, limits=limits), limits, 64, 1, after(2)).lanes >= 1


@given(rate=st.integers(1, 5_000), at=st.floats(0, 10))
def test_bound_of_the_debt_forgives_nothing_that_a_claim_took(rate: int, at: float) -> None:
    limits = replace(LIMITS, rate_per_second=rate)
    allowed = allowance(CLOSED, limits, 10_000, 8, after(at))
    pace = claimed(CLOSED, allowed, allowed.lanes * allowed.entries, after(at), TOKEN, 35.0)
    assert judged(pace, at=at, limits=limits).paid_until == pace.paid_until


@given(ahead=st.floats(0, 1e6), reads=st.integers(1, 20))
def test_opening_and_hold_are_bounded_after_a_clock_set_back(ahead: float, reads: int) -> None:
    """Reads in between do not extend them."""
    for breaker in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        pace = replace(CLOSED, breaker=breaker, breaker_until=after(ahead), probe=TOKEN)
        for read in range(reads):
            pace = as_of(pace, after(360.0 * read / reads))
        assert allowance(pace, LIMITS, 64, 8, after(360)) == Allowance(1, 1, probe=True)
    pace = replace(CLOSED, held_until=after(ahead), held_by="answered 429 with Retry-After")
    for read in range(reads):
        pace = as_of(pace, after(24 * 3600.0 * read / reads))
    assert allowance(pace, LIMITS, 64, 8, after(24 * 3600)).lanes == 64


@given(openings=st.integers(0, 40), draw=st.floats(0, 1, exclude_max=True), asked=st.floats(0, 1e7))
def test_bounds_keep_an_opening_and_a_hold(openings: int, draw: float, asked: float) -> None:
    failed = tried(Outcome.THROTTLED, asked=asked)
    limits = replace(LIMITS, breaker_threshold=1)
    pace = settled(replace(CLOSED, openings=openings), [failed], limits, NOON, draw=draw)
    assert pace.breaker is BreakerState.OPEN
    assert as_of(pace, NOON) == pace


def test_slow_start_longer_than_an_opening_keeps_its_length() -> None:
    until = after(24 * 3600)
    pace = replace(CLOSED, breaker=BreakerState.SLOW_START, breaker_until=until)
    assert as_of(pace, NOON) == pace
