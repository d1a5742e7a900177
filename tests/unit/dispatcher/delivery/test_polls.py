"""How often an idle dispatcher looks: rarely while batches are announced, and only then."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from holdfast.dispatcher.delivery import polls as module
from holdfast.dispatcher.delivery.polls import (
    ANNOUNCED_SECONDS,
    CLAIM_SECONDS,
    LOOK_SECONDS,
    RARELY_SECONDS,
    RETRY_SECONDS_MAX,
    ROUTE_SECONDS,
    UNANNOUNCED_SECONDS,
    Polls,
)
from holdfast.dispatcher.delivery.rules.values import Beat
from holdfast.dispatcher.delivery.supervisor import Pulse

FREQUENT = (ROUTE_SECONDS, CLAIM_SECONDS, LOOK_SECONDS, LOOK_SECONDS, LOOK_SECONDS)
RARE = (
    RARELY_SECONDS,
    ANNOUNCED_SECONDS,
    ANNOUNCED_SECONDS,
    RARELY_SECONDS,
    ANNOUNCED_SECONDS,
)


def longest(polls: Polls) -> tuple[float, ...]:
    return tuple(pulse.longest for pulse in _pulses(polls).values())


def _pulses(polls: Polls) -> dict[str, Pulse]:
    names = ("routing", "claiming", "rescuing", "replaying", "loading")
    return {name: getattr(polls, name) for name in names}


def _rung(polls: Polls) -> set[str]:
    return {name for name, pulse in _pulses(polls).items() if pulse._rung.is_set()}


async def _lanes(routed: Callable[[], None]) -> bool:
    routed()
    return True


async def _empty_batch(_routed: Callable[[], None]) -> bool:
    return True


def test_polls_are_rare_only_while_the_doorbell_works() -> None:
    polls = Polls()
    assert longest(polls) == FREQUENT
    polls.doorbell(works=True)
    assert longest(polls) == RARE
    polls.doorbell(works=False)
    assert longest(polls) == FREQUENT


def test_every_loop_looks_at_once_when_the_doorbell_fails() -> None:
    polls = Polls()
    polls.doorbell(works=True)
    assert _rung(polls) == set()
    polls.doorbell(works=False)
    assert _rung(polls) == {"routing", "claiming", "rescuing", "replaying", "loading"}


def test_change_of_an_operator_is_loaded_at_once() -> None:
    polls = Polls()
    polls.changed()
    assert _rung(polls) == {"loading", "replaying"}


@pytest.mark.parametrize(
    ("batches", "replays", "rung"),
    [(False, False, set()), (True, False, {"routing"}), (False, True, {"replaying"})],
)
def test_heartbeat_wakes_the_loops_that_it_found_work_for(
    batches: bool, replays: bool, rung: set[str]
) -> None:
    polls = Polls()
    polls.heartbeat(Beat(datetime.now(UTC), batches, replays))
    assert _rung(polls) == rung


@pytest.mark.parametrize("when", ["before", "during", "never"])
async def test_writer_that_does_not_ring_is_noticed_by_its_batch(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "seconds", lambda: now)
    polls = Polls()
    polls.doorbell(works=True)

    async def step(routed: Callable[[], None]) -> bool:
        if when == "during":
            polls.announced()
        return await _lanes(routed)

    if when == "before":
        polls.announced()
    assert await polls.route(step)
    assert longest(polls) == (FREQUENT if when == "never" else RARE)
    now += UNANNOUNCED_SECONDS
    await polls.route(_empty_batch)
    assert longest(polls) == RARE


async def test_one_notification_announces_one_look() -> None:
    polls = Polls()
    polls.doorbell(works=True)
    polls.announced()
    await polls.route(_lanes)
    assert longest(polls) == RARE
    await polls.route(_lanes)
    assert longest(polls) == FREQUENT


async def test_batches_from_before_the_doorbell_are_no_sign_of_a_silent_writer() -> None:
    polls = Polls()
    await polls.route(_lanes)
    polls.doorbell(works=True)
    assert longest(polls) == RARE


async def test_retry_is_claimed_when_it_is_due_however_rare_polls_are() -> None:
    polls, loop = Polls(), asyncio.get_running_loop()
    polls.claiming = Pulse(RETRY_SECONDS_MAX, RETRY_SECONDS_MAX)
    began = loop.time()
    polls.retries([0.3, 0.31, RETRY_SECONDS_MAX])
    async with asyncio.timeout(30):
        await polls.claiming.rest(busy=True)
    assert loop.time() - began >= 0.3
    assert polls._retries == set(), "a retry far away is left to the polls"
