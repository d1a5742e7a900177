"""Berths that live lanes can do without, and what is lent of them."""

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from dispatcher.delivery.flow import Flow
from dispatcher.delivery.rules.values import Lane


def ready(concurrency: int) -> Any:
    """One endpoint that can be sent to, as far as a flow looks at it."""
    return {1: SimpleNamespace(endpoint=SimpleNamespace(concurrency=concurrency))}


def lane(subject_id: int) -> Lane:
    return Lane(1, subject_id, UUID(int=1), 0, (), 10.0)


async def never(_lane: Lane) -> bool:
    return False


def flow() -> Flow:
    return Flow(256, 64, send=never, room=lambda: None, crashed=lambda _: None)


def test_half_of_what_is_free_can_be_lent() -> None:
    given = flow()
    assert given.spare(ready(8)) == {1: 4}
    for _ in range(4):
        given.lend(1)
    assert given.spare(ready(8)) == {}
    given.returned(1)
    assert given.spare(ready(8)) == {1: 1}
    assert flow().spare(ready(1)) == {1: 1}


def test_nothing_is_lent_while_more_lanes_may_be_due() -> None:
    given = flow()
    wanted = given.wanted(ready(8))
    given.take([], {1: 0})
    assert given.spare(ready(8)) == {}
    given.take([], wanted)
    assert given.spare(ready(8)) == {1: 4}


def test_nothing_is_lent_while_a_rate_is_used_up_by_lanes() -> None:
    async def inside() -> None:
        given = flow()
        wanted = given.wanted(ready(8))
        given.take([lane(1)], wanted, {1: 1})
        await given.quiet()
        given.settled(1)
        assert given.spare(ready(8)) == {}
        # That the rate allowed none says nothing about what is due.
        given.take([], wanted, {1: 0})
        assert given.spare(ready(8)) == {}
        given.take([], wanted, {1: 2})
        assert given.spare(ready(8)) == {1: 4}

    asyncio.run(inside())


def test_closed_flow_lends_nothing() -> None:
    given = flow()
    given.close()
    assert given.spare(ready(8)) == {}
