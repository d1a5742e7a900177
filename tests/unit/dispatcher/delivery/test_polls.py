"""How often an idle dispatcher looks: rarely while batches are announced, and only then."""

import asyncio
from collections.abc import Callable

import pytest

from holdfast.dispatcher.delivery import polls as module
from holdfast.dispatcher.delivery.polls import (
    ANNOUNCED_SECONDS,
    CLAIM_SECONDS,
    RETRY_SECONDS_MAX,
    ROUTE_SECONDS,
    UNANNOUNCED_SECONDS,
    Polls,
)
from holdfast.dispatcher.delivery.supervisor import Pulse

FREQUENT = (ROUTE_SECONDS, CLAIM_SECONDS)
RARE = (ANNOUNCED_SECONDS, ANNOUNCED_SECONDS)


def longest(polls: Polls) -> tuple[float, float]:
    return polls.routing.longest, polls.claiming.longest


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
    async with asyncio.timeout(RETRY_SECONDS_MAX / 2):
        await polls.claiming.rest(busy=True)
    assert loop.time() - began >= 0.3
    assert polls._retries == set(), "a retry far away is left to the polls"
