"""Whatever order deliveries and duplicates arrive in, the newest one that arrived decides."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.deploy.payouts.database import Pool, open_pool
from holdfast.deploy.payouts.metrics import Measures
from holdfast.deploy.payouts.service import receive
from holdfast.receiver import Inbox, Secret, verify
from tests.support.dispatch.sender import KEY_BYTES, Sent

MERCHANTS = count()
Play = Callable[[list[Sent]], None]
Storm = Callable[[list[list[Sent]]], None]

ACTIONS = st.lists(st.sampled_from(["block", "release"]), min_size=1, max_size=6)
GROUPS = st.integers(min_value=1, max_value=4)
ARRIVALS = st.lists(st.integers(min_value=0, max_value=5), min_size=1, max_size=15)


@pytest.fixture
def play(payouts_dsn: str) -> Iterator[Play]:
    """Deliver one after another through the service, without HTTP."""
    with asyncio.Runner() as runner:
        pool = open_pool(payouts_dsn)
        runner.run(pool.open())
        yield lambda sent: runner.run(_deliver(pool, sent))
        runner.run(pool.close())


@pytest.fixture
def storm(payouts_dsn: str) -> Iterator[Storm]:
    """Deliver groups, each at once; what is told `in_progress` is sent again."""
    with asyncio.Runner() as runner:
        pool = open_pool(payouts_dsn)
        runner.run(pool.open())
        yield lambda groups: runner.run(_storm(pool, groups))
        runner.run(pool.close())


async def _storm(pool: Pool, groups: list[list[Sent]]) -> None:
    for group in groups:
        await asyncio.gather(*(_until_settled(pool, sent) for sent in group))


async def _until_settled(pool: Pool, sent: Sent) -> None:
    delivery = verify(sent.headers, sent.content, [Secret(KEY_BYTES)])
    while (await receive(pool, Inbox(), delivery, Measures())).status == 409:
        pass


async def _deliver(pool: Pool, plan: list[Sent]) -> None:
    for sent in plan:
        answer = await receive(
            pool, Inbox(), verify(sent.headers, sent.content, [Secret(KEY_BYTES)]), Measures()
        )
        assert answer.status == 200


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(actions=ACTIONS, arrivals=ARRIVALS)
def test_final_hold_is_the_highest_sequence_that_arrived(
    play: Play, payouts_dsn: str, actions: list[str], arrivals: list[int]
) -> None:
    merchant = f"m_{next(MERCHANTS)}"
    order = [number % len(actions) + 1 for number in arrivals]
    play([Sent.of(merchant, actions[sequence - 1], sequence) for sequence in order])

    with psycopg.connect(payouts_dsn) as connection:

        def rows(query: str) -> list[Any]:
            return connection.execute(query, [merchant]).fetchall()

        held = rows("SELECT held FROM payouts.hold WHERE merchant_id = %s")
        history = rows(
            "SELECT sequence, effect FROM payouts.hold_history WHERE merchant_id = %s"
            " ORDER BY arrival"
        )
        log = rows(
            "SELECT sequence, outcome FROM payouts.delivery_log WHERE subject = %s ORDER BY arrival"
        )
    assert bool(held and held[0][0]) is (actions[max(order) - 1] == "block")
    newest = [s for i, s in enumerate(order) if s > max(order[:i], default=0)]
    assert [sequence for sequence, _ in history] == newest
    assert [sequence for sequence, _ in log] == order
    assert [s for s, outcome in log if outcome == "applied"] == newest
    changes = [actions[s - 1] for s, effect in history if effect == "applied"]
    assert changes == ["block", "release"] * (len(changes) // 2) + ["block"] * (len(changes) % 2)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), transitions=st.integers(min_value=1, max_value=6), size=GROUPS)
def test_any_interleaving_ends_as_in_order_delivery_once_each_does(
    storm: Storm, payouts_dsn: str, data: st.DataObject, transitions: int, size: int
) -> None:
    """Each arrives at least once, in any order, with duplicates, `size` of them at once."""
    number = next(MERCHANTS)
    calm, wild = f"calm_{number}", f"wild_{number}"
    numbers = range(1, transitions + 1)
    more = data.draw(st.lists(st.sampled_from(numbers), max_size=8), label="duplicates")
    order = data.draw(st.permutations([*numbers, *more]), label="arrivals")

    def sent(merchant: str, sequence: int) -> Sent:
        return Sent.of(merchant, "block" if sequence % 2 else "release", sequence)

    storm([[sent(calm, sequence)] for sequence in numbers])
    storm(
        [
            [sent(wild, sequence) for sequence in order[start : start + size]]
            for start in range(0, len(order), size)
        ]
    )
    with psycopg.connect(payouts_dsn) as connection:

        def ended(merchant: str) -> list[Any]:
            return connection.execute(
                "SELECT coalesce(held, false), last_sequence FROM payouts.inbox_subject"
                " LEFT JOIN payouts.hold ON merchant_id = subject WHERE subject = %s",
                [merchant],
            ).fetchall()

        assert ended(wild) == ended(calm) == [(transitions % 2 == 1, transitions)]
        applied = connection.execute(
            "SELECT sequence FROM payouts.delivery_log WHERE subject = %s AND outcome = 'applied'",
            [wild],
        ).fetchall()
    assert len(applied) == len(set(applied))
